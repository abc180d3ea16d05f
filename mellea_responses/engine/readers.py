"""Which reader reads the inside of a call, by family and by how the call begins."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import regex  # type: ignore[import-untyped]  # has partial matches, no stubs; transformers depends on it

from mellea_responses.engine.calls import Head, JsonCalls, NamedCalls, Reader
from mellea_responses.engine.families import Family
from mellea_responses.engine.marks import Marks
from mellea_responses.engine.markup import (
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


def bare_pattern(family: Family, schemas: Schemas) -> Any:
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

    def choose(first: str) -> Reader:
        if first == "{":
            return JsonCalls(pen, stops)
        if family.body in ("gemma", "gemma-function"):
            return ForeignCalls(pen, gemma_template(), re.compile(r"\s*call:([\w.:/-]+)"), marks.decode)
        if family.body == "pythonic":
            return ForeignCalls(pen, pythonic_template(), re.compile(r"\s*\[([A-Za-z_][\w.-]*)\("), marks.decode)
        if first == "[":
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
    pattern = rf"\s*({NAME})\s*"
    if family.body == "mistral":
        again, call_id, args = map(re.escape, markers)
        pattern = rf"\s*(?:{again})?\s*({NAME})\s*(?:{call_id}\s*(\S+?)\s*)?(?:{args})?\s*"

    def read(head: str) -> tuple[str, str | None] | None:
        found = re.fullmatch(pattern, head)
        return (found[1], found[2] if found.re.groups > 1 else None) if found else None

    return read


def _deepseek_head(head: str, begin: str, sep: str) -> tuple[str, str | None] | None:
    """`function<sep>NAME`, a line and a fence (R1, V3), or `NAME<sep>` (V3.1)."""
    before, found, after = head.rpartition(begin)[2].partition(sep)
    name = after.split("\n", 1)[0].strip(BLANK + "`") or before.strip()
    return (name, None) if found and re.fullmatch(NAME, name) else None
