"""How large and deep JSON is, before it is decoded: bytes are counted a hundred times faster than values are made.

What clients write freely (arguments, outputs, schemas) has no type that would bound it.
"""

from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Raw

from mellea_responses.errors import InvalidRequest
from mellea_responses.limits import MAX_DEPTH, MAX_FIELD_BYTES, MAX_ITEMS, MAX_VALUES
from mellea_responses.wire.chat import CreateChat
from mellea_responses.wire.request import CreateResponse

_SMALL = 64 * 1024
_FEW = 1000
_MARKS = b"[]{},"
_OTHERS = bytes(set(range(256)) - set(_MARKS))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1, ord(","): 0}
_LARGE = frozenset({"input", "instructions", "tools", "messages"})  # these have limits of their own
_NAMES = {*CreateResponse.__struct_fields__, *CreateChat.__struct_fields__} - _LARGE
_Fields = msgspec.defstruct(
    "_Fields", [(name, Raw, Raw()) for name in sorted(_NAMES)] + [("messages", list[Raw], [])], kw_only=True
)
_fields = msgspec.json.Decoder(_Fields)


class Shape:
    """Judges the pieces of one request, which have a number of values together.

    Args:
        values: How many.
    """

    def __init__(self, values: int = MAX_VALUES) -> None:
        self._most = self._left = values

    def check(self, raw: Raw | bytes, path: str) -> None:
        """Judges one piece. Small ones pass at once: they can hold neither many values nor deep ones.

        Raises:
            InvalidRequest: it is nested too deeply, or all pieces hold too many values.
        """
        data = bytes(raw)
        opened = data.count(b"{") + data.count(b"[")
        if opened <= MAX_DEPTH and (len(data) <= _SMALL or data.count(b",") <= _FEW):
            return
        marks = _outside_of_strings(data, 12 * self._left)
        if len(marks) > 3 * self._left:
            raise InvalidRequest(f"A request may hold {self._most} values in its items and tools.", param=path)
        if max(accumulate(map(_STEP.__getitem__, marks)), default=0) > MAX_DEPTH:
            raise InvalidRequest(f"JSON may be nested {MAX_DEPTH} levels deep.", param=path, code="invalid_json")
        self._left -= len(marks) // 3


def _outside_of_strings(data: bytes, most: int) -> bytes:
    """Brackets and commas that are no text; when there are more quotes than `most`, as many commas."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if data.count(b'"') > most:
        return b"," * most
    return b"".join(data.split(b'"')[::2]).translate(None, _OTHERS)


def check_fields(body: bytes) -> None:
    """Judges a request's fields; a small body passes at once, and one of wrong types is left to its decoder.

    Raises:
        InvalidRequest: a field is too large.
    """
    if len(body) <= MAX_FIELD_BYTES:
        return
    try:
        fields: Any = _fields.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return
    for name in _NAMES:
        if len(memoryview(getattr(fields, name))) > MAX_FIELD_BYTES:
            raise InvalidRequest(f"This field may have {MAX_FIELD_BYTES} bytes.", param=name)
    check_number(len(fields.messages), MAX_ITEMS, "messages")
    shape = Shape()
    for i, message in enumerate(fields.messages):
        shape.check(message, f"messages[{i}]")


def check_number(number: int, most: int, path: str) -> None:
    """Judges how many there are of something.

    Raises:
        InvalidRequest: there are too many.
    """
    if number > most:
        raise InvalidRequest(f"There may be {most} of these in a request; there are {number}.", param=path)


def check_depth(value: Any, path: str) -> None:
    """Judges JSON that is decoded already.

    Raises:
        InvalidRequest: it is nested too deeply.
    """
    depth, level = 0, [value]
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise InvalidRequest(f"JSON may be nested {MAX_DEPTH} levels deep.", param=path, code="invalid_json")
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
