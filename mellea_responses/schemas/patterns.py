"""The regular expressions of a schema: which cannot run, which would explode, and how large each becomes."""

import re
from typing import Any

from mellea_responses.errors import InvalidRequest
from mellea_responses.schemas.references import schemas

MAX_PATTERN = 4096
MAX_PATTERNS = 1000
MAX_STATES = 400_000
"""States of all patterns of a schema; making so many takes half a second."""
_RUNAWAY = 2**20
_WIDE = 4
"""States of what stands for many characters: those of its bytes."""
_PROPERTY = 100
"""States of a property of Unicode, such as all letters."""
_MANY = "DwWsS"
_NARROW = re.compile(r"\[[!-Z_-~]+\]?")
_ESCAPE = re.compile(r"\\0(?![0-9])|\\.", re.DOTALL)
_ODD = re.compile(
    r"\\[pPux]\{[^}]*\}|\\.|\[\^\](?=[^\]]*\Z)|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?![0-9]*,?[0-9]*\})", re.DOTALL
)
"""What may hold a brace that is none of these spellings, or is one."""
_SPELLED = {"[^]": r"[\s\S]", "{": r"\{"}
_BRACES = re.compile(r"\{([0-9]+)(?:,([0-9]*))?\}")
_PLAIN = re.compile(r"(?:[^\\(]|\\(?:[^0-9A-Za-z]|[dDwWsSnrtfvuxpP])|\((?:(?!\?)|\?:|\?<[A-Za-z]))*+", re.DOTALL)
"""What the linear engine knows for sure."""


def spelled(pattern: str) -> str:
    """The same for an engine that does not know the oddest spellings of ECMAScript: `[^]`, a zero, a lone brace."""
    pattern = _ESCAPE.sub(lambda found: r"\x00" if found[0] == r"\0" else found[0], pattern)
    return _ODD.sub(lambda found: _SPELLED.get(found[0], found[0]), pattern)


def check_patterns(schema: Any, path: str) -> bool:
    """Whether there are any.

    Raises:
        InvalidRequest: one cannot run, or they are too many.
    """
    count = states = 0
    for place, node in schemas(schema, path):
        found = [(f"{place}.pattern", node["pattern"])] if isinstance(node.get("pattern"), str) else []
        if isinstance(node.get("patternProperties"), dict):
            found += [(f"{place}.patternProperties", key) for key in node["patternProperties"]]
        count += len(found)
        if count > MAX_PATTERNS:
            raise InvalidRequest(f"The schema has more than {MAX_PATTERNS} patterns.", param=place)
        states += sum(check_pattern(pattern, where) for where, pattern in found)
        if states > MAX_STATES:
            raise InvalidRequest("The patterns of the schema repeat too often.", param=place)
    return bool(count)


def goes_back(pattern: str) -> bool:
    """Whether only an engine that can go back may be able to run it: it looks around, repeats itself, or is strange."""
    return _PLAIN.fullmatch(pattern) is None


def check_pattern(pattern: str, path: str) -> int:
    """Refuses what the engine would take in silence though no ECMAScript engine does, and what would explode.

    Returns:
        About how many states an engine has for it, with its repetitions written out.

    Raises:
        InvalidRequest: the pattern is refused.
    """
    if len(pattern) > MAX_PATTERN:
        raise InvalidRequest(f"The pattern is longer than {MAX_PATTERN} characters.", param=path)
    before, i = "", 0
    sizes, atom = [1], 0  # of each open group, and of what a repetition would repeat
    while i < len(pattern):
        char = pattern[i]
        times = _repeats(pattern, i) if char == "{" else None
        if char in "*+?" or times is not None:
            lazy = char == "?" and before == "repeated"
            if before in ("", "assertion", "lazy") or (before == "repeated" and not lazy):
                raise InvalidRequest(f"The pattern has nothing to repeat before `{char}` at position {i}.", param=path)
            before = "lazy" if lazy else "repeated"
            if times is not None:
                sizes[-1] += atom * (times - 1)
                if sizes[-1] > _RUNAWAY:
                    raise InvalidRequest("The pattern repeats too often.", param=path)
                i = pattern.index("}", i)
            i += 1
            continue
        before, atom = "atom", 1
        if char == "\\":
            kind = pattern[i + 1 : i + 2]
            atom = _PROPERTY if kind in "pP" else _WIDE if kind in _MANY else 1
            i = _escape_end(pattern, i)
        elif char == "[":
            end = _class_end(pattern, i)
            property_in_it = "\\p{" in pattern[i:end] or "\\P{" in pattern[i:end]
            atom = _PROPERTY if property_in_it else 1 if _NARROW.fullmatch(pattern, i, end) else _WIDE
            i = end
        elif char == "(":
            before, atom = "", 0
            sizes.append(1)
            i += 2 if pattern[i + 1 : i + 2] == "?" else 1  # the question mark belongs to the group
        else:
            if char == ")" and len(sizes) > 1:
                atom = sizes.pop()
            elif char == ".":
                atom = _WIDE
            before = {"^": "assertion", "|": ""}.get(char, "atom")
            i += 1
        sizes[-1] += atom
        if sizes[-1] > _RUNAWAY:
            raise InvalidRequest("The pattern repeats too often.", param=path)
    return sum(sizes)


def _escape_end(pattern: str, start: int) -> int:
    """After an escape; some have their argument in braces."""
    braced = pattern[start + 1 : start + 2] in "pPux" and pattern[start + 2 : start + 3] == "{"
    return (pattern.find("}", start) if braced else start + 1) + 1 or len(pattern)


def _class_end(pattern: str, start: int) -> int:
    i = start + (2 if pattern[start + 1 : start + 2] == "^" else 1)
    while i < len(pattern) and pattern[i] != "]":
        i += 2 if pattern[i] == "\\" else 1
    return i + 1


def _repeats(pattern: str, start: int) -> int | None:
    """How often the braces there repeat, at most or at least; None where they mean themselves."""
    found = _BRACES.match(pattern, start)
    return None if found is None else max(1, *(int(number[:9]) for number in found.groups() if number))
