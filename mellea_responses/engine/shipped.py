"""Regions by a model's own `response_template`.

Such a template may hold patterns, and what a pattern matches can depend on how the text was cut. So the text is fed
one character at a time: slower than a family's literals, the same however it came.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from json import dumps, loads
from typing import Any

import regex  # type: ignore[import-untyped]  # the flavour these patterns are written in; it has no stubs
from transformers.utils.chat_parsing import ResponseParser

from mellea_responses.engine.calls import JsonCalls, Reader
from mellea_responses.engine.marks import Marks
from mellea_responses.engine.markup import TaggedCalls, function_tags
from mellea_responses.engine.pen import Pen
from mellea_responses.engine.values import tool_schemas

THOUGHTS = frozenset({"reasoning_content", "reasoning", "thinking"})
FAILURES = (ValueError, KeyError, TypeError, RecursionError)
"""What transformers raises for a region it cannot read."""
AHEAD = re.compile(r"\(\?[=!]")
UNBOUNDED = re.compile(r"(?:\.|\]|\\[SDW]|\))[*+]")
RECENT = 400
"""Characters in which the opening marker of a call is looked for again."""


def literals_of(template: Any) -> tuple[str, ...]:
    """Every string of a template: its markers are somewhere among them."""
    return tuple(_strings(template))


def looks_far_ahead(template: Any) -> bool:
    """Whether a pattern looks ahead without a bound: such a one is tried again over everything with every token."""
    return any(
        UNBOUNDED.search(_group(text, found.end())) for text in _strings(template) for found in AHEAD.finditer(text)
    )


def _group(pattern: str, start: int) -> str:
    """A pattern from `start` to the end of the group that is open there."""
    depth = 1
    for found in re.finditer(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]|[()]", pattern[start:], re.DOTALL):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return pattern[start : start + found.start()]
    return pattern[start:]


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
        waits: Text at the start may turn out to be reasoning that only a closing tag ends.
    """

    def __init__(
        self,
        template: dict[str, Any],
        marks: Marks,
        pen: Pen,
        tools: Sequence[Mapping[str, Any]],
        *,
        waits: bool = False,
    ) -> None:
        self._template = _encoded(template, marks)
        self._marks = marks
        self._pen = pen
        self._tools: list[Any] = [dict(tool) for tool in tools]
        self._schemas = tool_schemas(tools)
        self._opens = _named_pattern(self._template)
        self._recent = ""
        self._name: str | None = None
        self._parser = ResponseParser(self._template, prefix="", tools=self._tools)
        self._field: str | None = None
        self._reader: Reader | None = None
        self._raw: list[str] = []
        self._waits = waits
        self._held = ""
        self._closing = marks.encode("</think>")

    def prime(self, tail: str) -> None:
        try:
            parser = ResponseParser(self._template, prefix=self._marks.encode(tail), tools=self._tools)
        except FAILURES:
            # A call of the history that the template cannot read back; the answer starts from nothing.
            return
        self._parser = parser
        waits = self._waits
        self._waits = False
        self._handle(parser.initial_events)
        decided = any(event["field"] in THOUGHTS for event in parser.initial_events)
        self._waits = waits and not decided
        self._pen.forget_blank()

    def read(self, piece: str) -> None:
        for char in piece:
            self._recent = self._recent[-RECENT:] + char
            if self._reader is not None and self._reader.quoting() == "line":
                # The parser would take a marker in a string for the end of the call; it sees all strings empty.
                self._reader.feed(char)
                if self._reader.quoting() != "line":
                    self._parser.feed(char)
                continue
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
        self._release()
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
            self._release()
            self._pen.seam()
        if field == "tool_calls":
            self._raw, self._reader = [], None
            self._name = self._captured_name()
            self._reader = self._streaming_reader(self._template["fields"][field])

    def _captured_name(self) -> str | None:
        """The name in the opening marker, which the parser itself tells only with a whole call."""
        names = [found["name"] for found in self._opens.finditer(self._recent)] if self._opens else []
        return self._marks.decode(names[-1]).strip() if names and names[-1] else None

    def _streaming_reader(self, field: Mapping[str, Any]) -> Reader | None:
        """A reader that does better than waiting for the whole region, where the notation is one of ours."""
        if _is_plain_json(field):
            return JsonCalls(self._pen)
        if self._name and "<parameter=" in str(field.get("content_args", {}).get("tag_pattern", "")):
            # Such patterns strip values, which would take the indentation off the first line of code.
            reader = TaggedCalls(self._pen, function_tags(named_inside=False), self._schemas, self._marks.decode)
            reader.start(self._name)
            return reader
        return None

    def _chunk(self, field: str, text: str) -> None:
        if field in THOUGHTS:
            self._pen.thought(text)
        elif field != "tool_calls":
            self._words(text)
        elif self._reader is not None:
            self._reader.feed(text)
        else:
            self._raw.append(text)

    def _words(self, text: str) -> None:
        if not self._waits:
            self._pen.text(text)
            return
        self._held += text
        at = self._held.find(self._closing, max(0, len(self._held) - len(text) - len(self._closing)))
        if at >= 0:
            thought, self._held = self._held[:at], self._held[at + len(self._closing) :]
            self._pen.thought(thought)
            self._pen.seam()
            self._release()

    def _release(self) -> None:
        """Nothing that follows can make reasoning of what was held back."""
        self._waits, held, self._held = False, self._held, ""
        self._pen.text(held)

    def _close(self, field: str, value: Any, *, ended: bool) -> None:
        # A region without a closing marker of its own ends with the answer and is whole.
        cut = ended and _has_close(self._template["fields"][field])
        if field == "tool_calls":
            if self._reader is not None:
                self._reader.close(whole=not cut)
            elif cut:
                self._incomplete()
            else:
                self._write(value)
        if field in THOUGHTS or field == "tool_calls":
            self._pen.seam()
        self._reader, self._field = None, None

    def _write(self, value: Any) -> None:
        for call in value if isinstance(value, list) else [value]:
            function = call.get("function", call) if isinstance(call, Mapping) else {}
            name, arguments = function.get("name"), function.get("arguments")
            if isinstance(name, str):
                self._pen.call(name)
                self._pen.args(self._arguments(arguments, "".join(self._raw).strip()))
                self._pen.end(whole=True)
            else:
                self._incomplete()

    def _incomplete(self) -> None:
        """What was written of a call that cannot be read: under its name where that is known, else as words."""
        raw = "".join(self._raw)
        if self._name:
            self._pen.call(self._name)
            self._pen.args(raw)
            self._pen.end(whole=False)
        else:
            self._pen.text(raw)

    def _arguments(self, arguments: Any, raw: str) -> str:
        """As the model wrote them where it wrote JSON."""
        if isinstance(arguments, str):
            return arguments
        field = self._template["fields"]["tool_calls"]
        if field.get("content") == "json" and not field.get("content_args") and _says(raw, arguments):
            return raw
        return self._marks.decode(dumps(arguments, ensure_ascii=False))

    def _fail(self) -> None:
        """The parser gave up on a region of calls."""
        if self._reader is not None:
            self._reader.close(whole=True)
        elif self._field == "tool_calls":
            self._incomplete()
        self._pen.seam()
        self._reader, self._field, self._raw, self._name = None, None, [], None

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


def _says(raw: str, value: Any) -> bool:
    """Whether `raw` is JSON of exactly this value: no argument was given another type."""
    try:
        return bool(loads(raw) == value)
    except (ValueError, RecursionError):
        return False


def _named_pattern(template: Mapping[str, Any]) -> Any:
    """The opening of a call, if the name is in it."""
    pattern = template.get("fields", {}).get("tool_calls", {}).get("open_pattern", "")
    return regex.compile(pattern, regex.DOTALL) if "(?P<name>" in pattern else None


def _has_close(field: Mapping[str, Any]) -> bool:
    return "close" in field or "close_pattern" in field
