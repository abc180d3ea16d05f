"""Regions by a model's own `response_template`.

Such a template may hold patterns, and what a pattern matches can depend on how the text was cut. So the text is fed
one character at a time: slower than a family's literals, the same however it came.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from json import dumps
from typing import Any

from transformers.utils.chat_parsing import ResponseParser

from mellea_responses.engine.calls import JsonCalls, Reader
from mellea_responses.engine.marks import Marks
from mellea_responses.engine.pen import Pen

THOUGHTS = frozenset({"reasoning_content", "reasoning", "thinking"})
FAILURES = (ValueError, KeyError, TypeError, RecursionError)
"""What transformers raises for a region it cannot read."""


def literals_of(template: Any) -> tuple[str, ...]:
    """Every string of a template: its markers are somewhere among them."""
    return tuple(_strings(template))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)


class ShippedRegions:
    """The regions of one answer, as the model's own template tells them.

    Args:
        template: The `response_template`.
        marks: The markers of the vocabulary.
        pen: Where the steps go.
        tools: What was offered; transformers types arguments by it.
    """

    def __init__(self, template: dict[str, Any], marks: Marks, pen: Pen, tools: Sequence[Mapping[str, Any]]) -> None:
        self._template = _encoded(template, marks)
        self._marks = marks
        self._pen = pen
        self._tools: list[Any] = [dict(tool) for tool in tools]
        self._parser = ResponseParser(self._template, prefix="", tools=self._tools)
        self._field: str | None = None
        self._reader: Reader | None = None
        self._raw: list[str] = []
        self._emit = True

    def prime(self, tail: str) -> None:
        try:
            parser = ResponseParser(self._template, prefix=self._marks.encode(tail), tools=self._tools)
        except FAILURES:
            # A call of the history that the template cannot read back; the answer starts from nothing.
            return
        self._parser = parser
        self._handle(parser.initial_events)

    def read(self, piece: str) -> None:
        for char in piece:
            try:
                events = self._parser.feed(char)
            except FAILURES:
                self._fail()
                events = self._feed_again(char)
            self._handle(events)

    def finish(self) -> None:
        try:
            _, events = self._parser.finalize()
        except FAILURES:
            self._fail()
            events = []
        self._handle(events, ended=True)
        if self._field not in THOUGHTS:
            self._pen.flush()

    def _handle(self, events: Sequence[Mapping[str, Any]], *, ended: bool = False) -> None:
        for event in events:
            field = str(event["field"])
            if event["type"] == "region_open":
                self._open(field)
            elif event["type"] == "region_chunk":
                self._chunk(field, event["text"])
            else:
                self._close(field, event.get("value"), ended=ended)

    def _open(self, field: str) -> None:
        self._field = field
        if field in THOUGHTS or field == "tool_calls":
            self._pen.seam()
        if field == "tool_calls":
            self._raw = []
            self._reader = JsonCalls(self._pen) if _is_plain_json(self._template["fields"][field]) else None

    def _chunk(self, field: str, text: str) -> None:
        if field in THOUGHTS:
            self._pen.thought(text)
        elif field != "tool_calls":
            self._pen.text(text)
        elif self._reader is not None:
            self._reader.feed(text)
        else:
            self._raw.append(text)

    def _close(self, field: str, value: Any, *, ended: bool) -> None:
        # A region without a closing marker of its own ends with the answer and is whole.
        cut = ended and _has_close(self._template["fields"][field])
        if field == "tool_calls":
            if self._reader is not None:
                self._reader.close(whole=not cut)
            else:
                self._write(value, whole=not cut)
        if field in THOUGHTS or field == "tool_calls":
            self._pen.seam()
        self._reader, self._field = None, None

    def _write(self, value: Any, *, whole: bool) -> None:
        for call in value if isinstance(value, list) else [value]:
            function = call.get("function", call) if isinstance(call, Mapping) else {}
            name, arguments = function.get("name"), function.get("arguments")
            if not isinstance(name, str):
                self._pen.text("".join(self._raw))
                continue
            raw = "".join(self._raw).strip()
            self._pen.call(name)
            self._pen.args(self._arguments(arguments, raw) if whole else raw)
            self._pen.end(whole=whole)

    def _arguments(self, arguments: Any, raw: str) -> str:
        """As the model wrote them where it wrote JSON."""
        if isinstance(arguments, str):
            return arguments
        field = self._template["fields"]["tool_calls"]
        if field.get("content") == "json" and not field.get("content_args") and not self._typed(arguments, raw):
            return raw
        return self._marks.decode(dumps(arguments, ensure_ascii=False))

    def _typed(self, arguments: Any, raw: str) -> bool:
        from json import loads

        try:
            return bool(loads(raw) != arguments)
        except ValueError:
            return True

    def _fail(self) -> None:
        """A region that cannot be read: an incomplete call where a name is known, else the words in it."""
        if self._reader is not None:
            self._reader.close(whole=True)
        else:
            self._pen.text("".join(self._raw))
        self._pen.seam()
        self._reader, self._field, self._raw = None, None, []

    def _feed_again(self, char: str) -> list[dict[str, Any]]:
        """Start over after a failure. A pattern is only decided by the character after it, which is still unread."""
        self._parser = ResponseParser(self._template, prefix="", tools=self._tools)
        literal = "close" in self._template["fields"].get("tool_calls", {})
        return [] if literal else list(self._parser.feed(char))


def _encoded(template: Mapping[str, Any], marks: Marks) -> dict[str, Any]:
    """The template with every marker token as its character, and with nothing required."""
    encoded: dict[str, Any] = _encode(deepcopy(dict(template)), marks, pattern=False)
    for field in encoded.get("fields", {}).values():
        field.pop("optional", None)
    return encoded


def _encode(value: Any, marks: Marks, *, pattern: bool) -> Any:
    if isinstance(value, str):
        return marks.encode_pattern(value) if pattern else marks.encode(value)
    if isinstance(value, Mapping):
        return {key: _encode(inner, marks, pattern=str(key).endswith("_pattern")) for key, inner in value.items()}
    if isinstance(value, list):
        return [_encode(inner, marks, pattern=pattern) for inner in value]
    return value


def _is_plain_json(field: Mapping[str, Any]) -> bool:
    """Whether the region is the call as one JSON object, so that its arguments can leave while they are written."""
    captures = "(?P<" in f"{field.get('open_pattern', '')}{field.get('close_pattern', '')}"
    return field.get("content") == "json" and not field.get("content_args") and not captures


def _has_close(field: Mapping[str, Any]) -> bool:
    return "close" in field or "close_pattern" in field
