"""The only module that knows Mellea. Nothing here is loaded for the built-in program."""

from typing import Any

from mellea.serve import ChatMessage as MelleaMessage
from pydantic import BaseModel, ConfigDict

from mellea_responses.program.messages import to_messages
from mellea_responses.turn import Format, Turn


class ChatMessage(MelleaMessage):
    """Mellea's chat message, with what it leaves out: the calls of an assistant's turn and the thoughts before it.

    `tool_calls` are chat-shaped, with `arguments` as the model wrote them.
    """

    tool_calls: list[dict[str, Any]] | None = None
    reasoning: str | None = None


def chat_messages(turn: Turn) -> list[ChatMessage]:
    """The whole conversation, oldest first. Mellea knows no developers: their messages are the system's."""
    return [_message(message) for message in to_messages(turn, as_written=True)]


def _message(message: dict[str, Any]) -> ChatMessage:
    role: Any = "system" if message["role"] == "developer" else message["role"]
    return ChatMessage(
        role=role,
        content=message["content"],
        name=message.get("name"),
        tool_call_id=message.get("tool_call_id"),
        tool_calls=message.get("tool_calls"),
        reasoning=message.get("reasoning_content"),
    )


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
