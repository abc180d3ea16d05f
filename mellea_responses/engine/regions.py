"""Splitting an answer into regions with transformers' `ResponseParser`, and sending each where it belongs.

The parser decides where regions begin and end. Text in which no marker can begin does not have to pass through it,
which is why a token of plain text costs next to nothing.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import regex  # type: ignore[import-untyped]  # has partial matches, no stubs; transformers depends on it
from transformers.utils.chat_parsing import ResponseParser

from mellea_responses.engine.calls import Head, JsonCalls, NamedCalls, Reader
from mellea_responses.engine.families import POINTS, Family, response_template
from mellea_responses.engine.marks import Marks
from mellea_responses.engine.markup import (
    ForeignCalls,
    Schemas,
    TaggedCalls,
    argument_tags,
    function_tags,
    gemma_template,
    pythonic_template,
)
from mellea_responses.engine.pen import BLANK, Pen

Mode = Literal["text", "thought", "call"]

_NAME = r"[\w.:/-]+"


class Regions:
    """The regions of one answer of a known family.

    Args:
        family: How the model writes.
        marks: The markers of its vocabulary.
        pen: Where the steps go.
        schemas: The tools' parameters by name.
        waits: Text at the start may turn out to be reasoning.
    """

    def __init__(self, family: Family, marks: Marks, pen: Pen, schemas: Schemas, *, waits: bool = False) -> None:
        self._pen = pen
        self._marks = marks
        self._family = family
        self._schemas = schemas
        spans = {
            name: (tuple(map(marks.encode, opens)), tuple(map(marks.encode, closes)))
            for name, (opens, closes) in family.spans.items()
        }
        edges = [literal for opens, closes in spans.values() for literal in (*opens, *closes)]
        self._template = response_template(spans)
        self._parser = ResponseParser(self._template, prefix="")
        self._starts = re.compile(f"[{re.escape(''.join({edge[0] for edge in edges}))}]")
        ends = re.escape("".join({edge[-1] for edge in edges}))
        # A piece ends where a marker may end, so that a piece brings at most one marker, as its end.
        self._cuts = re.compile(f"[^{ends}]*[{ends}]|[^{ends}]+", re.DOTALL)
        self._beginnings = {edge[:n] for edge in edges for n in range(1, len(edge))}
        self._longest = max(map(len, edges))
        self._recent = ""
        self._pending = False
        self._field = "content"
        self._mode: Mode = "text"
        self._reader: Reader | None = None
        self._header: list[str] = []
        self._priming = True
        self._waits = waits
        self._held: list[str] = []
        self._bare = _bare_pattern(family, schemas)
        self._gate = self._bare
        self._bare_reader: Reader | None = None

    def prime(self, tail: str) -> None:
        """Read what the prompt says of the answer: an opened think tag counts, words do not."""
        self.read(self._marks.encode(tail))
        self._priming = False

    def read(self, piece: str) -> None:
        """Take the next piece; a marker token comes as a piece of its own."""
        if self._bare_reader is not None:
            self._bare_reader.feed(piece)
        elif not self._pending and self._starts.search(piece) is None:
            self._route(piece)
        else:
            for cut in self._cuts.findall(piece):
                self._decide(cut)

    def finish(self) -> None:
        """The answer is over, wherever it stands."""
        _, events = self._parser.finalize()
        for event in events:
            if event["type"] == "region_chunk":
                self._route(event["text"])
        if self._bare_reader is not None:
            self._bare_reader.close(whole=False)
        if self._reader is not None:
            self._reader.close(whole=False)
        if self._field == "header":
            self._pen.text("".join(self._header))
        self._release()
        if self._field == "reasoning_content":
            self._pen.seam()
        self._end_message()

    def _decide(self, cut: str) -> None:
        self._recent = (self._recent + cut)[-self._longest :]
        for event in self._parser.feed(cut):
            match event["type"]:
                case "region_chunk":
                    self._route(event["text"])
                case "region_open" if event["field"] != "content":
                    self._enter(event["field"])
                case "region_close" if event["field"] != "content":
                    self._leave(event["field"])
        self._pending = any(self._recent[at:] in self._beginnings for at in range(len(self._recent)))

    def _fresh(self) -> None:
        """Back to where no field is open. A new parser also forgets the text so far, which it would keep for ever."""
        self._parser = ResponseParser(self._template, prefix="")
        self._recent, self._field = "", "content"

    def _route(self, text: str) -> None:
        match self._field:
            case "content":
                self._content(text)
            case "reasoning_content":
                self._pen.thought(text)
            case "header":
                self._header.append(text)
            case "answer":
                self._pen.text(text)
            case _ if self._reader is not None:
                self._reader.feed(text)

    def _enter(self, field: str) -> None:
        if field == "lone" and self._waits and not self._priming:
            self._pen.thought("".join(self._held))
            self._held, self._waits = [], False
        elif field in ("lone", "reasoning_content"):
            self._release()
            self._waits = False
        elif not self._priming:
            self._release()
        if field in ("end", "header"):
            self._end_message()
        self._pen.seam()
        if field in POINTS:
            self._fresh()
            self._gate = self._bare
            return
        self._field = field
        if field == "tool_calls":
            self._reader = make_reader(self._family, self._marks, self._pen, self._schemas)

    def _leave(self, field: str) -> None:
        if self._reader is not None:
            self._reader.close(whole=True)
            self._reader = None
        self._pen.seam()
        if field == "header":
            self._start_message(self._marks.decode("".join(self._header)))
            self._header = []
        self._gate = self._bare
        self._fresh()

    # ---------------------------------------------------------------- content

    def _content(self, text: str) -> None:
        if self._mode == "call":
            self._pen.args(text)
        elif self._priming:
            return
        elif self._mode == "thought":
            self._pen.thought(text)
        elif self._waits:
            self._held.append(text)
        elif self._gate is not None:
            self._knock(text)
        else:
            self._pen.text(text)

    def _knock(self, text: str) -> None:
        """Hold the start of an answer for as long as it may be a call without markers."""
        self._held.append(text)
        start = "".join(self._held)
        found = self._gate.match(start, partial=True) if self._gate is not None else None
        if found is None:
            self._release()
        elif not found.partial:
            self._held, self._gate = [], None
            self._bare_reader = make_reader(self._family, self._marks, self._pen, self._schemas)
            self._bare_reader.feed(start)

    def _release(self) -> None:
        """What was held back is text after all."""
        held, self._held = "".join(self._held), []
        self._gate, self._waits = None, False
        if held:
            self._pen.text(held)

    # ---------------------------------------------------------------- messages with headers

    def _start_message(self, header: str) -> None:
        recipient = re.search(r"\bto=([^\s<]+)", header)
        channel = header.rpartition("<|channel|>")[2].split(maxsplit=1)
        kind = re.match(r"\w*", channel[0])[0] if channel else ""  # type: ignore[index]  # `\w*` always matches
        if recipient and recipient[1] not in ("user", "all", "assistant"):
            self._mode = "call"
            # `functions` is how the format itself calls the client's tools, not a part of their names.
            self._pen.call(recipient[1].removeprefix("functions."))
        elif kind == "analysis":
            self._mode = "thought"
        else:
            self._mode = "text"
            self._pen.phase = {"commentary": "commentary", "final": "final_answer"}.get(kind)  # type: ignore[assignment]

    def _end_message(self) -> None:
        if self._mode == "call":
            self._pen.end(whole=False)
        elif self._mode == "text":
            self._pen.flush()
        self._mode = "text"
        self._header = []


def _bare_pattern(family: Family, schemas: Schemas) -> Any:
    """The start of a call without markers. Only a declared name makes one; other JSON is an answer."""
    if family.bare is None or not schemas:
        return None
    names = "|".join(map(re.escape, sorted(schemas, key=len, reverse=True)))
    if family.bare == "line":
        return regex.compile(rf"\s*(?:{names})\s*\n\s*\{{")
    kind = r'(?:"type"\s*:\s*"function"\s*,\s*)?'
    return regex.compile(rf'\s*\[?\s*\{{\s*{kind}"name"\s*:\s*"(?:{names})"\s*,\s*"(?:parameters|arguments)"\s*:')


class _Chooser:
    """Looks at the first character of a region to see how the call is written: models mix the ways."""

    def __init__(self, choices: Callable[[str], Reader]) -> None:
        self._choices = choices
        self._reader: Reader | None = None

    def feed(self, text: str) -> None:
        if self._reader is None:
            text = text.lstrip(BLANK)
            if not text:
                return
            self._reader = self._choices(text[0])
        self._reader.feed(text)

    def close(self, *, whole: bool) -> None:
        if self._reader is not None:
            self._reader.close(whole=whole)


def make_reader(family: Family, marks: Marks, pen: Pen, schemas: Schemas) -> Reader:
    """The reader for one region of calls."""
    stops = "".join(char for char in map(marks.encode, family.inner) if len(char) == 1)
    match family.body:
        case "gemma" | "gemma-function":
            return ForeignCalls(pen, gemma_template(), re.compile(r"\s*call:([\w.:/-]+)"), marks.decode)
        case "pythonic":
            return ForeignCalls(pen, pythonic_template(), re.compile(r"\s*\[([A-Za-z_][\w.-]*)\("), marks.decode)

    def choose(first: str) -> Reader:
        if first in "{[":
            return JsonCalls(pen, stops)
        if family.body == "glm":
            return TaggedCalls(pen, argument_tags(marks.encode), schemas, marks.decode)
        if family.body == "tagged" and first == "<":
            return TaggedCalls(pen, function_tags(), schemas, marks.decode)
        return NamedCalls(pen, _head(family, marks.encode), stops, tuple(map(marks.encode, family.inner)))

    return _Chooser(choose)


def _head(family: Family, encode: Callable[[str], str]) -> Head:
    markers: Sequence[str] = tuple(map(encode, family.inner))
    if family.body == "deepseek":
        return lambda head: _deepseek_head(head, *markers[:2])
    pattern = rf"\s*({_NAME})\s*"
    if family.body == "mistral":
        again, call_id, args = map(re.escape, markers)
        pattern = rf"\s*(?:{again})?\s*({_NAME})\s*(?:{call_id}\s*(\S+?)\s*)?(?:{args})?\s*"

    def read(head: str) -> tuple[str, str | None] | None:
        found = re.fullmatch(pattern, head)
        return (found[1], found[2] if found.re.groups > 1 else None) if found else None

    return read


def _deepseek_head(head: str, begin: str, sep: str) -> tuple[str, str | None] | None:
    """`function<sep>NAME`, a line and a fence (R1, V3), or `NAME<sep>` (V3.1)."""
    before, found, after = head.rpartition(begin)[2].partition(sep)
    name = after.split("\n", 1)[0].strip(BLANK + "`") or before.strip()
    return (name, None) if found and re.fullmatch(_NAME, name) else None
