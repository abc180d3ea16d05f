"""What a Mellea program is given: chat messages, tools and the answer's form, as Mellea's own types."""

from types import ModuleType
from typing import Any

from mellea import MelleaSession
from mellea.backends.tools import MelleaTool
from mellea.serve import ChatMessage as MelleaMessage
from mellea.stdlib.context import ChatContext
from pydantic import BaseModel, ConfigDict

from mellea_responses.media.images import as_png, is_picture
from mellea_responses.program.messages import to_chat_tools, to_messages
from mellea_responses.turn import Format, Turn


class ChatMessage(MelleaMessage):
    """Mellea's chat message, with what it leaves out: the calls of an assistant's turn and the thoughts before it.

    `tool_calls` are chat-shaped, with `arguments` as the model wrote them.
    """

    tool_calls: list[dict[str, Any]] | None = None
    reasoning: str | None = None


class ClientTool(dict[str, Any], MelleaTool[..., Any]):
    """A tool that the client runs: the chat-shaped `dict` that it sent, and a `MelleaTool` for every backend.

    Programs written for `m serve` read the `dict`; sessions with `tool_calls=True` want the tool.
    """

    def __init__(self, shaped: dict[str, Any]) -> None:
        dict.__init__(self, shaped)
        MelleaTool.__init__(self, shaped["function"]["name"], _refuse, shaped)


def _refuse(*_args: Any, **_kwargs: Any) -> Any:
    """Stands where a tool's code would be.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("This tool belongs to the client and runs there: return the model's call, do not run it.")


def client_tools(turn: Turn) -> list[ClientTool]:
    """What the client declared, for `model_options[ModelOption.TOOLS]`."""
    return [ClientTool(shaped) for shaped in to_chat_tools(turn)]


def chat_messages(turn: Turn) -> list[ChatMessage]:
    """The whole conversation, oldest first. Mellea knows no developers: their messages are the system's.

    Raises:
        InvalidRequest: a picture cannot be read.
    """
    return [_message(message) for message in to_messages(turn, as_written=True)]


def _message(message: dict[str, Any]) -> ChatMessage:
    role: Any = "system" if message["role"] == "developer" else message["role"]
    content = message["content"]
    return ChatMessage(
        role=role,
        content=content if isinstance(content, str) else [_part(part) for part in content],
        name=message.get("name"),
        tool_call_id=message.get("tool_call_id"),
        tool_calls=message.get("tool_calls"),
        reasoning=message.get("reasoning_content"),
    )


def _part(part: dict[str, Any]) -> Any:
    """Mellea reads PNG alone, and no nulls."""
    if part["type"] != "image_url":
        return part
    image = {key: value for key, value in part["image_url"].items() if value is not None}
    if is_picture(image["url"]):
        image["url"] = as_png(image["url"])
    return {"type": "image_url", "image_url": image}


def shared_sessions(module: ModuleType) -> list[str]:
    """Names in a module that are sessions with a chat context: made once, they remember every client's words."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, MelleaSession) and isinstance(value.ctx, ChatContext)
    ]


def format_class(form: Format) -> type[BaseModel] | None:
    """The client's schema as a pydantic class whose `model_json_schema` gives it back unchanged.

    Backends read only the schema and the name of the class; every field is accepted, since the guard judges the
    answer. A strict schema is closed, or a constrained small model adds keys until the token limit.
    """
    if form.kind != "json_schema" or form.schema is None:
        return None
    schema = dict(form.schema)
    if form.strict and schema.get("type") == "object":
        schema.setdefault("additionalProperties", False)

    class Answer(BaseModel):
        model_config = ConfigDict(extra="allow")

        @classmethod
        def model_json_schema(cls, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
            return schema

    Answer.__name__ = Answer.__qualname__ = form.name
    return Answer
