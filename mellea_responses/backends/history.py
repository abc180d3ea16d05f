"""A Mellea context and an action → chat messages, with the calls and thoughts of earlier answers in their places.

Mellea's formatter turns an earlier thunk into what was parsed from it, and its calls are lost there; here they are
taken from the thunk itself.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from mellea.core import ModelOutputThunk
from mellea.formatters import ChatFormatter

from mellea_responses.errors import InvalidRequest


def to_messages(spans: Iterable[Any], formatter: ChatFormatter, system: str | None = None) -> list[dict[str, Any]]:
    """Messages as chat templates take them.

    Args:
        spans: What the context shows and the action, in order.
        formatter: Renders everything that is no answer.
        system: Takes the place of a system message in the context.

    Raises:
        InvalidRequest: there is a picture or a sound among them.
    """
    messages = [message for span in spans for message in _messages(span, formatter)]
    if system is not None:
        messages = [message for message in messages if message["role"] != "system"]
        messages.insert(0, {"role": "system", "content": system})
    return messages


def _messages(span: Any, formatter: ChatFormatter) -> list[dict[str, Any]]:
    if isinstance(span, ModelOutputThunk):
        calls = [_call(call.tool_call_id, call.name, dict(call.args)) for call in span.tool_calls or ()]
        return [_shaped("assistant", span.value or "", calls, span.thinking)]
    return [_message(message, formatter) for message in formatter.to_chat_messages([span])]


def _message(message: Any, formatter: ChatFormatter) -> dict[str, Any]:
    if message.images or message.audio:
        raise InvalidRequest("This model reads text only.", param="input")
    calls = [
        _call(call.get("id"), call["function"]["name"], _mapping(call["function"].get("arguments")))
        for call in message.tool_calls or ()
    ]
    shaped = _shaped(message.role, formatter.print(message), calls, message.thinking)
    if message.tool_call_id is not None:
        shaped["tool_call_id"] = message.tool_call_id
    name = message.tool_name or getattr(message, "name", None)
    if message.role == "tool" and name:
        shaped["name"] = name
    return shaped


def _shaped(role: str, content: str, calls: list[dict[str, Any]], thinking: str | None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": role, "content": content}
    if calls:
        message["tool_calls"] = calls
    if thinking and role == "assistant":
        message["reasoning_content"] = thinking
    return message


def _call(call_id: str | None, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": call_id or "", "type": "function", "function": {"name": name, "arguments": arguments}}


def _mapping(arguments: Any) -> dict[str, Any]:
    """Templates iterate arguments; what is no object becomes one."""
    value = arguments
    if isinstance(arguments, str):
        try:
            value = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            value = arguments
    return value if isinstance(value, dict) else {"arguments": value}
