"""Splitting an answer into regions with transformers' `ResponseParser`, and sending each where it belongs.

The parser decides where regions begin and end. Text in which no marker can begin does not have to pass through it,
which is why a token of plain text costs next to nothing.
"""

import re
from typing import Literal

from transformers.utils.chat_parsing import ResponseParser

from mellea_responses.engine.calls import Reader
from mellea_responses.engine.families import POINTS, Family, response_template
from mellea_responses.engine.marks import Marks
from mellea_responses.engine.pen import Pen
from mellea_responses.engine.readers import bare_pattern, make_reader
from mellea_responses.engine.values import Schemas

Mode = Literal["text", "thought", "call"]


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
        self._knocked: list[str] = []
        self._bare = bare_pattern(family, schemas)
        self._gate = self._bare
        self._bare_reader: Reader | None = None

    def prime(self, tail: str) -> None:
        """Read what the prompt says of the answer: an opened think tag counts, words do not."""
        self.read(self._marks.encode(tail))
        self._pen.forget_blank()
        self._priming = False

    def read(self, piece: str) -> None:
        """Take the next piece; a marker token comes as a piece of its own."""
        if self._bare_reader is not None:
            self._bare_reader.feed(piece)
        elif self._gate is not None and self._field == "content" and not self._priming:
            self._knock(piece)
        else:
            self._split(piece)

    def finish(self) -> None:
        """The answer is over, wherever it stands."""
        self._split("".join(self._knocked))
        _, events = self._parser.finalize()
        for event in events:
            if event["type"] == "region_chunk":
                self._route(event["text"])
        for reader in (self._bare_reader, self._reader):
            if reader is not None:
                reader.close(whole=False)
        if self._field == "header":
            self._pen.text("".join(self._header))
        self._release()
        if self._field == "reasoning_content":
            self._pen.seam()
        self._end_message()

    def _split(self, piece: str) -> None:
        if not self._pending and self._starts.search(piece) is None:
            self._route(piece)
            return
        cuts = self._cuts.findall(piece)
        for at, cut in enumerate(cuts, 1):
            self._decide(cut)
            if self._gate is not None and at < len(cuts) and not self._priming:
                # A marker has just made room for a call without markers.
                self.read("".join(cuts[at:]))
                return

    def _knock(self, piece: str) -> None:
        """Hold the start of an answer for as long as it may be a call without markers."""
        self._knocked.append(piece)
        start = "".join(self._knocked)
        found = self._gate.match(start, partial=True)
        if found is not None and found.partial:
            return
        self._knocked, self._gate = [], None
        if found is None:
            self._split(start)
        else:
            self._bare_reader = make_reader(self._family, self._marks, self._pen, self._schemas)
            self._bare_reader.feed(start)

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
        self._header = []
