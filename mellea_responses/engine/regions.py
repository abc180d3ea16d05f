"""Splitting an answer into regions with transformers' `ResponseParser`, and sending each where it belongs.

The parser decides where regions begin and end. Text in which no marker can begin does not have to pass through it,
which is why a token of plain text costs next to nothing.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import regex  # type: ignore[import-untyped]  # has partial matches, no stubs; transformers depends on it
from transformers.utils.chat_parsing import ResponseParser

from mellea_responses.engine.calls import Reader
from mellea_responses.engine.families import POINTS, Family, response_template
from mellea_responses.engine.marks import Marks
from mellea_responses.engine.markup import OVER
from mellea_responses.engine.pen import Pen
from mellea_responses.engine.readers import bare_pattern, make_reader
from mellea_responses.engine.values import Schemas

TAG = "<function="
Mode = Literal["text", "thought", "call"]
Question = tuple[Any, Callable[[Any, str], None]]
"""A pattern that only what follows can match, and what to do with the match, or None, and the text."""


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
        opens, closes = spans.get("tool_calls", ((), ()))
        inner = set(map(marks.encode, family.inner))
        # Where the end of a call was forgotten, the next one ends it.
        self._opens = tuple(literal for literal in opens if literal not in inner)
        self._ends = (*closes, *self._opens)
        if opens:
            spans["tool_calls"] = (opens, self._ends)
        if family.bare == "tag" and schemas:
            spans["tag"] = ((TAG,), ())
        again = "|".join(map(regex.escape, (*self._opens, OVER)))
        self._real = {"line": regex.compile(r"[\x00-\x1f]"), "block": regex.compile(rf"\s*(?:{again})")}
        self._thinks = spans.get("reasoning_content", ((), ()))[0]
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
        self._given = 0
        self._question: Question | None = None
        self._asked = ""
        self._bare = bare_pattern(family, schemas)
        self._bare_reader: Reader | None = None

    def prime(self, tail: str) -> None:
        """Read what the prompt says of the answer: an opened think tag counts, words do not."""
        self.read(self._marks.encode(tail))
        self._pen.forget_blank()
        self._priming = False
        self._given = len(self._header)
        if self._field == "content":
            self._expect()
        elif self._field == "reasoning_content":
            # The model may open once more what the prompt has opened.
            again = regex.compile(rf"\s*(?:{'|'.join(map(regex.escape, self._thinks))})")
            self._question = again, lambda found, text: self.read(text[found.end() if found else 0 :])

    def read(self, piece: str) -> None:
        """Take the next piece; a marker token comes as a piece of its own."""
        if self._bare_reader is not None:
            self._bare_reader.feed(piece)
        elif self._question is not None:
            self._asked += piece
            found = self._question[0].match(self._asked, partial=True)
            if found is None or not found.partial:
                self._answer(found)
        else:
            self._split(piece)

    def finish(self) -> None:
        """The answer is over, wherever it stands."""
        while self._question is not None:
            self._answer(self._question[0].match(self._asked + OVER))
        _, events = self._parser.finalize()
        for event in events:
            if event["type"] == "region_chunk":
                self._route(event["text"])
        for reader in (self._bare_reader, self._reader):
            if reader is not None:
                reader.close(whole=False)
        if self._field == "header":
            self._pen.text(self._without_header())
        self._release()
        if self._field == "reasoning_content":
            self._pen.seam()
        self._end_message()

    def _answer(self, found: Any) -> None:
        assert self._question is not None
        (_, decide), text = self._question, self._asked
        self._question, self._asked = None, ""
        decide(found, text)

    def _expect(self) -> None:
        """Here may begin a call without markers: hold what comes for as long as it may be one."""
        if self._bare is not None and self._family.bare != "tag" and not self._priming:
            self._question = self._bare, self._start_bare

    def _start_bare(self, found: Any, text: str) -> None:
        if found is None:
            self._split(text)
        else:
            self._bare_reader = make_reader(self._family, self._marks, self._pen, self._schemas)
            self._bare_reader.feed(text)

    def _start_tagged(self, found: Any, text: str) -> None:
        self._fresh()
        if found is None:
            self._content(TAG)
        else:
            self._enter("tool_calls")
            self._resume(TAG)
        self.read(text)

    def _resume(self, text: str) -> None:
        """Go on within a region of calls with this text, whatever the parser took it for."""
        assert self._reader is not None
        self._reader.feed(text)
        self._parser.feed(self._opens[0])
        self._field = "tool_calls"

    def _split(self, piece: str) -> None:
        if not self._pending and self._starts.search(piece) is None:
            self._route(piece)
            return
        cuts = self._cuts.findall(piece)
        for at, cut in enumerate(cuts, 1):
            self._decide(cut)
            if self._question is not None and at < len(cuts):
                self.read("".join(cuts[at:]))
                return

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
        if field == "tag":
            self._question = self._bare, self._start_tagged
            return
        if field == "lone" and self._waits:
            self._pen.thought("".join(self._held))
            self._held, self._waits = [], False
        elif not self._priming or field in ("reasoning_content", "tool_calls"):
            self._release()
        if field in ("end", "header"):
            self._end_message()
        self._pen.seam()
        if field in POINTS:
            self._fresh()
            self._expect()
            return
        self._field = field
        if field == "tool_calls":
            self._reader = make_reader(self._family, self._marks, self._pen, self._schemas)

    def _leave(self, field: str) -> None:
        if self._reader is not None:
            marker = next(literal for literal in self._ends if self._recent.endswith(literal))
            if quoting := self._reader.quoting():
                self._question = self._real[quoting], partial(self._end_call, marker)
            else:
                self._end_call(marker, True, "")
            return
        self._pen.seam()
        if field == "header":
            self._start_message(self._marks.decode("".join(self._header)))
            self._header, self._given = [], 0
        self._fresh()
        self._expect()

    def _end_call(self, marker: str, real: object, rest: str) -> None:
        """A marker ends a call, unless it stands in a value that goes on after it."""
        assert self._reader is not None
        self._fresh()
        if not real:
            self._resume(marker)
        else:
            self._reader.close(whole=True)
            self._reader = None
            self._pen.seam()
            if marker in self._opens:
                self._decide(marker)
            else:
                self._expect()
        self.read(rest)

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
        else:
            self._pen.text(text)

    def _release(self) -> None:
        """What was held back is text after all."""
        self._pen.text("".join(self._held))
        self._held, self._waits = [], False

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
            self._pen.phase = {"commentary": "commentary", "final": "final_answer"}.get(kind)  # type: ignore[assignment]  # only phases are values

    def _end_message(self) -> None:
        if self._mode == "call":
            self._pen.end(whole=False)
        elif self._mode == "text":
            self._pen.flush()
        self._mode = "text"
        self._header, self._given = [], 0

    def _without_header(self) -> str:
        """Words where a header should be. One that was cut is no words."""
        words = "".join(self._header[self._given :])
        markers = map(self._marks.encode, self._family.literals)
        cut = not self._given or re.match(r"\s*to=", words) or any(marker in words for marker in markers)
        return "" if cut else words
