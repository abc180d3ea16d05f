"""What the engine is asked for. Imports no torch, so that anybody may build a request."""

from typing import Any, Literal, Protocol

import msgspec

from mellea_responses.turn import Flag, Format, Options


class LoadError(RuntimeError):
    """A model could not be loaded; the message is one line for the person who started the server."""


class Cancelled(Protocol):
    """Tells from any thread that nobody wants the answer any more."""

    def is_set(self) -> bool:
        """Whether that is so."""


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One answer wanted from the model.

    Args:
        messages: The conversation as chat templates take it. Roles are `system`, `developer`, `user`, `assistant` and
            `tool`; `content` is a string or a list of parts; a part may say in `param` where it stood in the client's
            request, for errors. An assistant message may carry `tool_calls`, each
            `{"id", "type": "function", "function": {"name", "arguments"}}` with a mapping for arguments, and
            `reasoning_content`. A tool message carries `tool_call_id`, `content` and `name`.
        tools: What the model may call, each `{"type": "function", "function": {"name", "description", "parameters"}}`.
        options: How to sample and when to stop.
        format: The form the text must have.
        tool_choice: `auto`, `none`, `required` or a named choice; `none` keeps the tools out of the prompt.
        parallel_tool_calls: Whether one answer may hold several calls.
        owner: Who asks. Caches are never shared between owners.
        notes: The engine writes here what the access line should say: `match`, `cached` and `new`.
        cancelled: Set it from any thread and the answer ends within one token or prefill chunk.
        raw: A prompt as it stands, to be continued without a chat template; the messages do not count then.
        truncation: `auto` drops the oldest turns of a prompt that is too long; `disabled` refuses it.
    """

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    options: Options = Options()
    format: Format = Format()
    tool_choice: Any = "auto"
    parallel_tool_calls: bool = True
    owner: str = ""
    notes: dict[str, str | int | float] = {}
    cancelled: Cancelled = msgspec.field(default_factory=Flag)
    raw: str | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
