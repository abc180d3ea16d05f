"""Which reader reads the inside of a call, by family and by how the call begins."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import regex  # type: ignore[import-untyped]  # has partial matches, no stubs; transformers depends on it

from mellea_responses.engine.calls import Head, JsonCalls, NamedCalls, Quoting, Reader
from mellea_responses.engine.families import Family
from mellea_responses.engine.marks import Marks
from mellea_responses.engine.markup import (
    GEMMA_STRINGS,
    PYTHON_STRINGS,
    ForeignCalls,
    TaggedCalls,
    argument_tags,
    function_tags,
    gemma_template,
    pythonic_template,
)
from mellea_responses.engine.pen import BLANK, Pen
from mellea_responses.engine.values import Schemas

NAME = r"[\w.:/-]+"
CALL = re.compile(rf"\s*call:({NAME})")
PYTHON_CALL = re.compile(r"\s*\[([A-Za-z_][\w.-]*)\(")


def bare_pattern(family: Family, schemas: Schemas) -> Any:
    """The start of a call without markers. Only a declared name makes one; anything else is an answer."""
    if family.bare is None or not schemas:
        return None
    names = "|".join(map(re.escape, sorted(schemas, key=len, reverse=True)))
    if family.bare == "tag":
        return regex.compile(f"(?:{names})>")
    if family.bare == "line":
        return regex.compile(rf"\s*(?:{names})\s*\n\s*\{{")
    kind = r'(?:"type"\s*:\s*"function"\s*,\s*(?:"function"\s*:\s*\{\s*)?)?'
    return regex.compile(rf'\s*\[?\s*\{{\s*{kind}"name"\s*:\s*"(?:{names})"\s*,\s*"(?:parameters|arguments)"\s*:')


LEAD = regex.compile(rf"[{BLANK}]*(```\w*\s+)?[{{\[]")


class _Chooser:
    """Looks at the beginning of a region to see how the call is written: models mix the ways."""

    def __init__(self, pen: Pen, choices: Callable[[str, bool], Reader]) -> None:
        self._pen = pen
        self._choices = choices
        self._reader: Reader | None = None
        self._lead = ""

    def quoting(self) -> Quoting:
        return self._reader.quoting() if self._reader is not None else None

    def feed(self, text: str) -> None:
        if self._reader is None:
            self._lead += text
            found = LEAD.match(self._lead, partial=True)
            if found is not None and found.partial:
                return
            fenced = found is not None and found[1] is not None
            text = self._lead[found.end() - 1 :] if fenced else self._lead.lstrip(BLANK)
            self._reader = self._choices(text[0], fenced)
        self._reader.feed(text)

    def close(self, *, whole: bool) -> None:
        if self._reader is not None:
            self._reader.close(whole=whole)
        else:
            self._pen.text(self._lead)


def make_reader(family: Family, marks: Marks, pen: Pen, schemas: Schemas) -> Reader:
    """The reader for one region of calls."""
    stops = "".join(char for char in map(marks.encode, family.inner) if len(char) == 1)

    def choose(first: str, fenced: bool) -> Reader:
        if first == "{" or fenced:
            return JsonCalls(pen, stops, fenced=fenced)
        if family.body in ("gemma", "gemma-function"):
            return ForeignCalls(pen, gemma_template(), CALL, GEMMA_STRINGS, marks.decode)
        if family.body == "pythonic":
            return ForeignCalls(pen, pythonic_template(), PYTHON_CALL, PYTHON_STRINGS, marks.decode)
        if first == "[":
            return JsonCalls(pen, stops)
        if family.body == "glm":
            return TaggedCalls(pen, argument_tags(marks.encode), schemas, marks.decode)
        if family.body == "tagged" and first == "<":
            return TaggedCalls(pen, function_tags(), schemas, marks.decode)
        return NamedCalls(pen, _head(family, marks.encode), stops, tuple(map(marks.encode, family.inner)))

    return _Chooser(pen, choose)


def _head(family: Family, encode: Callable[[str], str]) -> Head:
    markers: Sequence[str] = tuple(map(encode, family.inner))
    if family.body == "deepseek":
        return lambda head: _deepseek_head(head, *markers)
    pattern = rf"\s*({NAME})\s*"
    if family.body == "mistral":
        again, call_id, args = map(re.escape, markers)
        pattern = rf"\s*(?:{again})?\s*({NAME})\s*(?:{call_id}\s*(\S+?)\s*)?(?:{args})?\s*"

    def read(head: str) -> tuple[str, str | None] | None:
        found = re.fullmatch(pattern, head)
        return (found[1], found[2] if found.re.groups > 1 else None) if found else None

    return read


def _deepseek_head(head: str, begin: str, sep: str, end: str) -> tuple[str, str | None] | None:
    """`function<sep>NAME`, a line and a fence (R1, V3), or `NAME<sep>` (V3.1)."""
    before, found, after = head.rpartition(begin)[2].partition(sep)
    name = after.partition(end)[0].split("\n", 1)[0].strip(BLANK + "`") or before.strip()
    return (name, None) if found and re.fullmatch(NAME, name) else None
