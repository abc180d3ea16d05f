"""Bytes in, Structs out; every complaint becomes an error with a message for people and a path for programs.

The fast way is one typed decode. Only an item whose `type` is missing is read a second time, loosely.
"""

import re
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from mellea_responses.errors import ContentTooLarge, InvalidRequest
from mellea_responses.wire.items import RECEIPTS, Receipt
from mellea_responses.wire.params import ItemParam, ToolParam
from mellea_responses.wire.request import CreateResponse
from mellea_responses.wire.shape import check_fields

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_create = msgspec.json.Decoder(CreateResponse)
_item = msgspec.json.Decoder(ItemParam)
_tool = msgspec.json.Decoder(ToolParam)
_NAMES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "bytes": "string",
    "list": "array",
    "dict": "object",
}
_LONG = 16 * 1024
_KNOWN_TOOL = frozenset({"function", "custom", "namespace", "tool_search"})
_PAIR_WITHIN = 32
_HALF_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]")


def decode_create(body: bytes) -> CreateResponse:
    """Reads a request body.

    Raises:
        InvalidRequest: it is not JSON, or a field has the wrong type or range.
        ContentTooLarge: one string is longer than the specification allows.
    """
    return _decode(_create, body, "")


def decode_item_param(raw: Raw | bytes, path: str) -> ItemParam | Receipt:
    """Reads one input item at `path`; a missing `type` is added where it can only be one.

    Raises:
        InvalidRequest: it is no known kind of item, or one of its fields is wrong.
    """
    try:
        return _item.decode(raw)
    except msgspec.ValidationError as exc:
        return _second_look(raw, path, exc)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as exc:
        raise _not_json(exc, raw) from None


def decode_tool_param(raw: Raw | bytes, path: str) -> ToolParam | dict[str, Any]:
    """Reads one tool at `path`. A tool of another type is somebody's hosted tool and comes back as a dict.

    Raises:
        InvalidRequest: it is not an object with a `type`, or one of its fields is wrong.
    """
    return read_tool(msgspec.json.decode(raw), path)


def read_tool(loose: Any, path: str) -> ToolParam | dict[str, Any]:
    """The same for a tool that is decoded already, such as one inside an item."""
    if not isinstance(loose, dict):
        raise InvalidRequest(f"Expected an object, got {_json_type(loose)}.", param=path)
    kind = loose.get("type")
    if (kind is None and isinstance(loose.get("function"), dict | str)) or (kind is None and "parameters" in loose):
        loose = {**loose, "type": "function"}
    elif not isinstance(kind, str) or not kind:
        raise InvalidRequest("A tool needs a `type`, such as `function`.", param=f"{path}.type")
    elif kind not in _KNOWN_TOOL:
        return loose
    tool: ToolParam = convert(loose, ToolParam, path)  # type: ignore[arg-type]  # a union is no type to mypy
    return tool


def convert(value: Any, kind: type[T], path: str) -> T:
    """`msgspec.convert`, strict, with our errors."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        raise invalid(exc, path) from None


def invalid(exc: msgspec.ValidationError, prefix: str = "") -> InvalidRequest | ContentTooLarge:
    """The client's version of a complaint of msgspec: JSON's names for types, the path apart."""
    reason, _, path = str(exc).partition(" - at `$")
    reason = re.sub(r"`(\w+)`", lambda m: f"`{_NAMES.get(m[1], m[1])}`", reason)
    reason = re.sub(r"`([^`]*\|[^`]*)`", lambda m: f"`{_type_list(m[1])}`", reason)
    param = (prefix + path.rstrip("`")).lstrip(".")
    missing = re.fullmatch(r"Object missing required field `(\w+)`", reason)
    if missing:
        param = f"{param}.{missing[1]}".lstrip(".")
        reason = f"Missing required field `{missing[1]}`"
    if re.search(r"length <= (10485760|33554432|67108864)", reason):
        return ContentTooLarge(f"{reason[:300]}.", param=param, code="string_above_max_length")
    return InvalidRequest(f"{reason[:300]}.", param=param)


def decode(body: bytes, kind: type[T]) -> T:
    """Reads a small body.

    Raises:
        InvalidRequest: it is not JSON, or a field has the wrong type.
    """
    return _decode(msgspec.json.Decoder(kind), body, "")


def _decode(decoder: msgspec.json.Decoder[T], body: bytes, prefix: str) -> T:
    if not body:
        raise InvalidRequest("The body is empty; send a JSON object.")
    check_fields(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as exc:
        raise invalid(exc, prefix) from None
    except (msgspec.DecodeError, RecursionError, UnicodeError) as exc:
        raise _not_json(exc, body) from None


def _not_json(exc: Exception, body: Raw | bytes) -> InvalidRequest:
    if isinstance(exc, RecursionError):
        return InvalidRequest("The body is nested too deeply.", code="invalid_json")
    if isinstance(exc, UnicodeError):
        return InvalidRequest("The body is not valid UTF-8.", code="invalid_json")
    if "truncated" in str(exc) and _HALF_PAIR.search(bytes(memoryview(body)[-_PAIR_WITHIN:])):
        # The decoder waits for the six bytes of a second half and says that the body was cut.
        return InvalidRequest(
            "The body holds half of a surrogate pair (an escape such as \\ud83d alone), which is no character.",
            code="invalid_json",
        )
    return InvalidRequest(f"The body is not valid JSON: {str(exc)[:200]}.", code="invalid_json")


def _second_look(raw: Raw | bytes, path: str, exc: msgspec.ValidationError) -> ItemParam | Receipt:
    try:
        loose = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise _not_json(error, raw) from None
    if not isinstance(loose, dict):
        raise InvalidRequest(f"Expected an object, got {_json_type(loose)}.", param=path)
    kind = loose.get("type")
    if isinstance(kind, str) and kind in RECEIPTS:
        return loose
    if kind is None:
        kind = _guess(loose)
        if kind is None:
            raise InvalidRequest("An item needs a `type`, such as `message`.", param=f"{path}.type")
        loose = {**loose, "type": kind}
        try:
            item = _complete(loose, len(memoryview(raw)))
        except msgspec.ValidationError as again:
            exc = again
        else:
            return item
    if kind == "message" and isinstance(loose.get("content"), list):
        loose = {**loose, "content": [_with_part_type(part, loose.get("role")) for part in loose["content"]]}
        return _convert_item(loose, path)
    raise invalid(exc, path)


def _complete(loose: dict[str, Any], size: int) -> ItemParam:
    if size < _LONG:  # setting a conversion up costs as much as reading this again
        return _item.decode(_encode(loose))
    item: ItemParam = msgspec.convert(loose, ItemParam)
    return item


def _convert_item(loose: dict[str, Any], path: str) -> ItemParam:
    item: ItemParam = convert(loose, ItemParam, path)  # type: ignore[arg-type]  # a union is no type to mypy
    return item


def _guess(loose: dict[str, Any]) -> str | None:
    """The one type an untyped item can have."""
    if "role" in loose:
        return "message"
    if "call_id" in loose:
        return "function_call" if "name" in loose else "function_call_output" if "output" in loose else None
    return (
        "item_reference"
        if "id" in loose and set(loose) <= {"id"} | {k for k, v in loose.items() if v is None}
        else None
    )


def _with_part_type(part: Any, role: Any) -> Any:
    """Bare strings and untyped texts as parts; anything else stays and is judged as it is."""
    kind = "output_text" if role == "assistant" else "input_text"
    if isinstance(part, str):
        return {"type": kind, "text": part}
    if isinstance(part, dict) and part.get("type") is None and isinstance(part.get("text"), str):
        return {**part, "type": kind}
    return part


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
        dict: "an object",
    }
    return names[type(value)]


def _type_list(names: str) -> str:
    return " | ".join(_NAMES.get(name.strip(), name.strip()) for name in names.split("|"))
