"""A model's chat template: what it can take, rendering, and a clear 400 when it refuses."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from jinja2.exceptions import TemplateError

from mellea_responses.engine.fence import FENCE
from mellea_responses.engine.messages import Message, Traits
from mellea_responses.engine.pen import mint_call_id
from mellea_responses.errors import InvalidRequest
from mellea_responses.turn import Options

log = logging.getLogger(__name__)

# For models that come without a template. A base model continues the pattern.
FALLBACK = (
    "{% for m in messages %}{{ m['role'].capitalize() }}: {{ m['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant: {% endif %}"
)

_OUR_ARGUMENTS = {
    "conversation", "messages", "tools", "documents", "chat_template", "add_generation_prompt",
    "continue_final_message", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict",
    "return_assistant_tokens_mask", "tokenizer_kwargs",
}  # fmt: skip

_NOTHING_SAID = Options()

_PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "probe",
        "parameters": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
    },
}


class ChatTemplate:
    """Renders messages with the tokenizer's own template.

    Args:
        tokenizer: A transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._template = None if tokenizer.chat_template else FALLBACK
        self.traits = self._probe()

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), options: Options = _NOTHING_SAID
    ) -> str:
        """The prompt as text, ending where the model's answer begins.

        Raises:
            InvalidRequest: The template refuses these messages; the error names the first one it stumbles over.
        """
        arguments = template_arguments(options)
        try:
            return self._render(messages, tools, arguments)
        except Exception as exc:
            log.info("the chat template raised", exc_info=True)
            raise InvalidRequest(self._complaint(exc, messages, tools, arguments), param="input") from None

    def _render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], arguments: dict[str, Any]
    ) -> str:
        rendered = self._tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tools=[dict(tool) for tool in tools] or None,
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=True,
            **arguments,
        )
        return str(rendered)

    def _complaint(
        self, exc: Exception, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], arguments: dict[str, Any]
    ) -> str:
        # Only what a template's author wrote for its reader may leave; other errors can quote the template.
        words = str(exc).replace(FENCE, "").split() if type(exc) is TemplateError else ()
        said = f": {' '.join(words)[:160]}" if words else ""
        at = self._culprit(messages, tools, arguments)
        where = f"message {at + 1} of {len(messages)} ({messages[at]['role']})" if at is not None else "these messages"
        return f"The model's chat template cannot render {where}{said}"

    def _culprit(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], arguments: dict[str, Any]
    ) -> int | None:
        for count in range(1, len(messages) + 1):
            try:
                self._render(messages[:count], tools, arguments)
            except Exception:
                return count - 1
        return None

    def closer(self, names: Iterable[str]) -> str:
        """Which of these special tokens ends an earlier answer; empty if none does."""
        rest = self.between_turns().lstrip()
        return next((name for name in names if rest.startswith(name)), "")

    def between_turns(self) -> str:
        """What the template writes between an answer and the next user's words; empty if it refuses to."""
        answer = {"role": "assistant", "content": "qprobea"}
        try:
            text = self._render(
                [{"role": "user", "content": "a"}, answer, {"role": "user", "content": "qprobeu"}], (), {}
            )
        except Exception:
            return ""
        return text.partition("qprobea")[2].partition("qprobeu")[0]

    def _probe(self) -> Traits:
        user, other = {"role": "user", "content": "qprobeu"}, {"role": "user", "content": "qprobev"}
        system, answer = {"role": "system", "content": "qprobes"}, {"role": "assistant", "content": "qprobea"}
        ways = product((mint_call_id(), "abcdefghi"), ("mapping", "string"))
        id_, arguments = next((way for way in ways if self._takes_calls(user, *way)), ("", None))
        return Traits(
            system=self._shows([system, user], "qprobes", "qprobeu"),
            late_system=self._shows([user, answer, system, other], "qprobes", "qprobev"),
            repeats=self._shows([user, other], "qprobeu", "qprobev"),
            tools=arguments is not None and self._shows([user], "probe_tool", tools=[_PROBE_TOOL]),
            arguments=arguments or "mapping",
            short_ids=len(id_) == 9,
            reasoning=self._reasoning_keys(),
        )

    def _takes_calls(self, user: Message, id_: str, kind: str) -> bool:
        arguments = {"x": "qprobex"} if kind == "mapping" else '{"x": "qprobex"}'
        call = {"id": id_, "type": "function", "function": {"name": "probe_tool", "arguments": arguments}}
        asked = {"role": "assistant", "content": "", "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": id_, "name": "probe_tool", "content": "qprober"}
        return self._shows([user, asked, result], "qprobex", "qprober", tools=[_PROBE_TOOL])

    def _shows(self, messages: Sequence[Message], *words: str, tools: Sequence[Mapping[str, Any]] = ()) -> bool:
        try:
            text = self._render(messages, tools, {})
        except Exception:
            return False
        return all(word in text for word in words)

    def _reasoning_keys(self) -> tuple[str, ...]:
        source = str(self._template or self._tokenizer.chat_template)
        known = ("reasoning_content", "thinking", "reasoning")
        return tuple(key for key in known if f".{key}" in source or f"'{key}'" in source or f'"{key}"' in source)


def template_arguments(options: Options) -> dict[str, Any]:
    """Variables for the template: the effort, and what the client adds; never the template itself."""
    arguments: dict[str, Any] = {}
    if options.effort is not None:
        arguments["enable_thinking"] = options.effort != "none"
        arguments["reasoning_effort"] = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}.get(
            options.effort, options.effort
        )
    arguments.update({key: value for key, value in options.chat_template_kwargs.items() if key not in _OUR_ARGUMENTS})
    return arguments
