"""Mellea's model options → what the engine is asked for."""

from collections.abc import Callable, Mapping
from typing import Any

from mellea.backends import ModelOption

from mellea_responses.turn import Options

REMAP = {
    "max_new_tokens": ModelOption.MAX_NEW_TOKENS,
    "max_tokens": ModelOption.MAX_NEW_TOKENS,
    "max_completion_tokens": ModelOption.MAX_NEW_TOKENS,
    "reasoning_effort": ModelOption.THINKING,
    "seed": ModelOption.SEED,
    "stop": ModelOption.STOP_SEQUENCES,
    "stop_strings": ModelOption.STOP_SEQUENCES,
    "stream": ModelOption.STREAM,
    "system": ModelOption.SYSTEM_PROMPT,
    "tools": ModelOption.TOOLS,
}
"""Names that people coming from other backends use."""

_SAME = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "chat_template_kwargs",
)  # fmt: skip
_ELSEWHERE = {
    ModelOption.MAX_NEW_TOKENS, ModelOption.SEED, ModelOption.STOP_SEQUENCES, ModelOption.THINKING, ModelOption.TOOLS,
    ModelOption.TOOL_CHOICE, ModelOption.STREAM, ModelOption.STREAM_TIMEOUT, ModelOption.SYSTEM_PROMPT, "do_sample",
}  # fmt: skip


def to_options(given: Mapping[str, Any], unknown: Callable[[str], None]) -> Options:
    """The options of one generation.

    Args:
        given: Mellea's options, under Mellea's names.
        unknown: Hears of each option that this backend does not know.
    """
    for name in given.keys() - _ELSEWHERE - set(_SAME):
        unknown(name)
    options: dict[str, Any] = {name: given[name] for name in _SAME if given.get(name) is not None}
    if given.get("do_sample") is False:
        options["temperature"] = 0.0
    stop = given.get(ModelOption.STOP_SEQUENCES) or ()
    thinking: Any = given.get(ModelOption.THINKING)
    if isinstance(thinking, bool):
        thinking = "medium" if thinking else "none"
    return Options(
        **options,
        seed=given.get(ModelOption.SEED),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        max_output_tokens=given.get(ModelOption.MAX_NEW_TOKENS),
        effort=thinking,
    )


def to_choice(choice: Any) -> Any:
    """A tool choice in chat shape, a bare name, or the protocol's own → the protocol's."""
    if isinstance(choice, str):
        known = choice in ("auto", "none", "required")
        return choice if known else {"type": "function", "name": choice}
    if not isinstance(choice, Mapping):
        return "auto"
    if "function" in choice:
        return {"type": "function", "name": choice["function"]["name"]}
    if "allowed_tools" in choice:
        allowed = choice["allowed_tools"]
        return {"type": "allowed_tools", "mode": allowed["mode"], "tools": [to_choice(one) for one in allowed["tools"]]}
    return dict(choice)
