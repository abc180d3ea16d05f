"""How `serve()` is called: by keyword, exactly as Mellea 0.8 calls it, and nothing its signature does not name.

`input`, `requirements` and `model_options` are always given; `format`, `client_options` and our own `turn` only to a
signature that names them.
"""

import inspect
from collections.abc import Callable
from typing import Any

from mellea_responses.program.messages import to_chat_choice
from mellea_responses.turn import Options, Turn
from mellea_responses.wire.chat import FromChat

ALWAYS = ("input", "requirements", "model_options")
BY_NAME = ("format", "client_options", "turn")

# Mellea's keys for options (mellea.backends.ModelOption); spelled here so that a program that never touches Mellea
# does not load it.
TOOLS = "@@@tools@@@"
MAX_NEW_TOKENS = "@@@max_new_tokens@@@"
SEED = "@@@seed@@@"
STREAM = "@@@stream@@@"
STOP_SEQUENCES = "@@@stop_sequences@@@"
THINKING = "@@@thinking@@@"


class WrongSignature(TypeError):
    """`serve()` cannot be called with what every program gets; the message says what is missing."""


class Signature:
    """`serve()` with what it takes.

    Raises:
        WrongSignature: it cannot take the arguments every program gets.
    """

    def __init__(self, serve: Callable[..., Any]) -> None:
        self._serve = serve
        signature = inspect.signature(serve).parameters
        positional = inspect.Parameter.VAR_POSITIONAL  # `*input` takes nothing by keyword
        parameters = {name: parameter for name, parameter in signature.items() if parameter.kind is not positional}
        kinds = {p.kind for p in parameters.values()}
        takes_any = inspect.Parameter.VAR_KEYWORD in kinds
        self._names = [name for name in ALWAYS if takes_any or name in parameters]
        self._names += [name for name in BY_NAME if name in parameters]
        _check(parameters, takes_any)

    @property
    def reads_messages(self) -> bool:
        """Whether the program is given chat messages, as Mellea's own types."""
        return "input" in self._names

    def call(self, turn: Turn) -> Any:
        """Calls the program with this turn."""
        return self._serve(**{name: _ARGUMENTS[name](turn) for name in self._names})


def _check(parameters: Any, takes_any: bool) -> None:
    known = {*ALWAYS, *BY_NAME}
    for name, parameter in parameters.items():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise WrongSignature(f"serve() must take `{name}` by keyword.")
        needed = parameter.default is inspect.Parameter.empty
        if needed and name not in known and parameter.kind not in (
            inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL,
        ):  # fmt: skip
            raise WrongSignature(
                f"serve() needs `{name}`, which no request gives; known are {', '.join(sorted(known))}."
            )
    if "input" not in parameters and "turn" not in parameters and not takes_any:
        raise WrongSignature("serve() must take `input` (chat messages) or `turn`.")


def model_options(turn: Turn) -> dict[str, Any]:
    """The client's options under Mellea's names; nothing that the client did not send."""
    given: Options = turn.options
    options: dict[str, Any] = {
        name: getattr(given, name)
        for name in (
            "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
        )
        if getattr(given, name) is not None
    }  # fmt: skip
    if given.max_output_tokens is not None:
        options[MAX_NEW_TOKENS] = given.max_output_tokens
    if given.seed is not None:
        options[SEED] = given.seed
    if given.stop:
        options[STOP_SEQUENCES] = list(given.stop)
    if given.effort is not None:
        options[THINKING] = given.effort
    if turn.request.stream:
        options[STREAM] = True
    if turn.tools:
        options[TOOLS] = _tools(turn)
        options["tool_choice"] = to_chat_choice(turn)
    return options


def client_options(turn: Turn) -> dict[str, Any]:
    """What the client sent, without nulls, plus the chat-style keys programs read; a chat client's body as it is."""
    import msgspec

    if isinstance(turn.request, FromChat):
        return {k: v for k, v in msgspec.json.decode(turn.request.body).items() if v is not None}
    sent = {k: v for k, v in msgspec.to_builtins(_plain(turn)).items() if v is not None}
    if turn.options.max_output_tokens is not None:
        sent["max_tokens"] = turn.options.max_output_tokens
    return sent


def _plain(turn: Turn) -> Any:
    from msgspec.structs import replace

    return replace(turn.request, input=None, tools=None)


def _messages(turn: Turn) -> Any:
    from mellea_responses.program.inputs import chat_messages

    return chat_messages(turn)


def _tools(turn: Turn) -> Any:
    from mellea_responses.program.inputs import client_tools

    return client_tools(turn)


def _format(turn: Turn) -> Any:
    from mellea_responses.program.inputs import format_class

    return format_class(turn.format)


_ARGUMENTS: dict[str, Callable[[Turn], Any]] = {
    "input": _messages,
    "requirements": lambda turn: list(turn.request.requirements or []),
    "model_options": model_options,
    "format": _format,
    "client_options": client_options,
    "turn": lambda turn: turn,
}
