"""Reading calls whose arguments are JSON, while they are written.

The arguments leave exactly as they stand; nothing here parses and writes them again.
"""

import json
import re
from collections.abc import Callable
from typing import Literal, Protocol

from mellea_responses.engine.pen import BLANK, Pen

NAMES = frozenset({"name"})
ARGUMENTS = frozenset({"arguments", "parameters"})
IDS = frozenset({"id", "call_id"})

Head = Callable[[str], tuple[str, str | None] | None]
"""What stands before a call's arguments, to the call's name and id; None when it is no call."""


Quoting = Literal["line", "block"] | None
"""In what a marker may stand as a mere word: a value that cannot hold a line break, one that can, or none."""


class Reader(Protocol):
    """Reads the inside of a region of calls."""

    def quoting(self) -> Quoting:
        """What kind of value is open."""

    def feed(self, text: str) -> None:
        """Take the next piece."""

    def close(self, *, whole: bool) -> None:
        """The region is over; `whole` when its closing marker was there, not merely the end of the answer."""


class JsonSpan:
    """Finds where one JSON value ends, without looking back.

    Args:
        stops: Characters that end the value wherever they stand: marker tokens, which are no part of any JSON.
    """

    def __init__(self, stops: str = "") -> None:
        self.done = False
        self.broken = False
        self._structure = re.compile(rf'["\\{{}}\[\]\x00-\x1f{re.escape(stops)}]')
        self._scalar_end = re.compile(rf"[\s,}}\]{re.escape(stops)}]")
        self._kind: Literal["", "string", "nested", "scalar"] = ""
        self._depth = 0
        self._quoted = False
        self._escaped = False
        self._torn = False

    def quoting(self) -> Quoting:
        """A string of JSON ends on its line: one with a line break in it is broken, and its end may never come."""
        return "line" if self._quoted and not self._torn else None

    def take(self, text: str, start: int) -> int:
        """How far the value reaches in `text`, from `start` on; `done` tells whether it ends there."""
        if not self._kind:
            first = text[start]
            self._kind = "string" if first == '"' else "nested" if first in "{[" else "scalar"
        if self._kind == "scalar":
            end = self._scalar_end.search(text, start)
            self.done = end is not None
            return end.start() if end else len(text)
        return self._walk(text, start)

    def _walk(self, text: str, start: int) -> int:
        skip = start if self._escaped else -1
        self._escaped = False
        for found in self._structure.finditer(text, start):
            at = found.start()
            if at == skip:
                continue
            char = text[at]
            if char == "\\":
                if self._quoted:
                    skip = at + 1
                    self._escaped = skip == len(text)
            elif char == '"':
                self._quoted = not self._quoted
                if self._kind == "string" and not self._quoted:
                    return self._end(at + 1)
            elif char < " ":
                self._torn = self._torn or self._quoted
            elif char not in "{}[]":
                self.broken = True
                return self._end(at)
            elif not self._quoted:
                self._depth += 1 if char in "{[" else -1
                if self._depth == 0:
                    return self._end(at + 1)
        return len(text)

    def _end(self, at: int) -> int:
        self.done = True
        return at


class CallObject:
    """One `{"name": …, "arguments": {…}}`, members in any order, perhaps inside a `{"function": …}`."""

    def __init__(self, pen: Pen, stops: str) -> None:
        self.done = False
        self._pen = pen
        self._stops = stops
        self._raw: list[str] = []
        self._named = False
        self._id: str | None = None
        self._early: list[str] = []
        self._level = 0
        self._key: str | None = None
        self._span: JsonSpan | None = None
        self._value: list[str] = []
        self._streams = False

    def quoting(self) -> Quoting:
        return self._span.quoting() if self._span is not None else None

    def feed(self, text: str, start: int) -> int:
        """Read on; the answer is how far this object reaches in `text`."""
        at = start
        while at < len(text) and not self.done:
            at = self._in_value(text, at) if self._span else self._between(text, at)
        if not self._named:
            self._raw.append(text[start:at])
        return at

    def close(self, *, whole: bool) -> None:
        """Nothing follows. Without a name there is no call, only what was written."""
        if self._span is not None and not self._streams and self._key in ARGUMENTS:
            self._args("".join(self._value))
        if self._named:
            self._pen.end(whole=whole)
        else:
            self._pen.text("".join(self._raw))

    def _between(self, text: str, at: int) -> int:
        """Punctuation between members; anything that is no JSON here is passed over."""
        char = text[at]
        if char in self._stops:
            self.done = True
            return at
        if char == "}":
            self._level -= 1
            self.done = self._level <= 0
        elif char == "{" and (self._level == 0 or self._key in (None, "function")):
            self._level, self._key = self._level + 1, None
        elif char not in BLANK and char not in ",:" and (self._key is not None or char == '"'):
            self._begin(char)
            return at
        return at + 1

    def _begin(self, first: str) -> None:
        self._span = JsonSpan(self._stops)
        self._value = []
        self._streams = self._key in ARGUMENTS and first == "{"

    def _in_value(self, text: str, at: int) -> int:
        span = self._span
        assert span is not None
        end = span.take(text, at)
        if self._streams:
            self._args(text[at:end])
        else:
            self._value.append(text[at:end])
        if span.done:
            self._span = None
            self._finish_value(broken=span.broken)
        return end

    def _finish_value(self, *, broken: bool) -> None:
        raw, key = "".join(self._value), self._key
        if key is None and not broken:
            self._key = str(_loads(raw))
            return
        self._key = None
        if key in ARGUMENTS:
            if not self._streams:
                # Some models write the arguments as a string that holds the JSON.
                value = _loads(raw)
                self._args(value if isinstance(value, str) else "" if value is None else raw)
        elif key in NAMES and not self._named:
            if isinstance(name := _loads(raw), str) and name:
                self._name(name)
        elif key in IDS and isinstance(written := _loads(raw), str) and written:
            self._id = written

    def _name(self, name: str) -> None:
        self._named = True
        self._pen.call(name, self._id)
        for piece in self._early:
            self._pen.args(piece)

    def _args(self, text: str) -> None:
        if self._named:
            self._pen.args(text)
        else:
            self._early.append(text)


class JsonCalls:
    """Call objects one after another: alone, in a list, or with `;` or line breaks between them.

    Args:
        pen: Where the steps go.
        stops: Marker tokens that end arguments wherever they stand.
        fenced: They stand in a fence of backticks.
    """

    def __init__(self, pen: Pen, stops: str = "", *, fenced: bool = False) -> None:
        self._pen = pen
        self._stops = stops
        self._passed = stops + "`" * fenced
        self._object: CallObject | None = None
        self._words = False

    def quoting(self) -> Quoting:
        return self._object.quoting() if self._object is not None else None

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            at = self._between(text, at) if self._object is None else self._inside(self._object, text, at)

    def close(self, *, whole: bool) -> None:
        if self._object is not None:
            self._object.close(whole=whole)

    def _inside(self, current: CallObject, text: str, at: int) -> int:
        at = current.feed(text, at)
        if current.done:
            current.close(whole=True)
            self._object, self._words = None, False
        return at

    def _between(self, text: str, at: int) -> int:
        if text[at] == "{":
            self._object = CallObject(self._pen, self._stops)
            return at
        if not self._words and (text[at] in BLANK or text[at] in "[],;}" or text[at] in self._passed):
            return at + 1
        self._words = True
        end = text.find("{", at)
        end = len(text) if end < 0 else end
        self._pen.text(text[at:end])
        return end


class NamedCalls:
    """Calls whose name stands before the arguments: everything up to the first `{` is the head.

    Args:
        pen: Where the steps go.
        head: Reads a head.
        stops: Marker tokens that end arguments wherever they stand.
        markers: What may stand around a name. A cut after one leaves a call without arguments, a cut before it words.
    """

    def __init__(self, pen: Pen, head: Head, stops: str = "", markers: tuple[str, ...] = ()) -> None:
        self._pen = pen
        self._markers = markers
        self._read_head = head
        self._stops = stops
        self._head: list[str] = []
        self._span: JsonSpan | None = None
        self._is_call = False

    def quoting(self) -> Quoting:
        return self._span.quoting() if self._span is not None else None

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            at = self._in_head(text, at) if self._span is None else self._in_args(self._span, text, at)

    def close(self, *, whole: bool) -> None:
        if self._span is not None:
            self._pen.end(whole=whole)
            return
        head = "".join(self._head)
        call = self._read_head(head) if whole or head.rstrip(BLANK).endswith(self._markers or ("\0",)) else None
        if call is None:
            self._pen.text(self._words(head))
        else:
            self._pen.call(*call)
            self._pen.end(whole=whole)

    def _words(self, head: str) -> str:
        """What is left of a head without markers and the fence around arguments."""
        for marker in self._markers:
            head = head.replace(marker, "")
        return head if head.strip(BLANK + "`") else ""

    def _in_head(self, text: str, at: int) -> int:
        end = text.find("{", at)
        self._head.append(text[at : len(text) if end < 0 else end])
        if end < 0:
            return len(text)
        head, self._head = "".join(self._head), []
        call = self._read_head(head)
        self._is_call = call is not None
        if call is None:
            self._pen.text(self._words(head))
        else:
            self._pen.call(*call)
        self._span = JsonSpan(self._stops)
        return end

    def _in_args(self, span: JsonSpan, text: str, at: int) -> int:
        end = span.take(text, at)
        if self._is_call:
            self._pen.args(text[at:end])
        else:
            self._pen.text(text[at:end])
        if span.done:
            self._span = None
            self._pen.end(whole=True)
        return end


def _loads(raw: str) -> object:
    """The value, or None for what is no JSON."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
