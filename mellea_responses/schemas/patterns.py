"""The regular expressions of a schema: which cannot run, which would explode, and how large each becomes."""

from collections.abc import Iterator
from typing import Any

from mellea_responses.errors import InvalidRequest

MAX_PATTERN = 4096
MAX_PATTERNS = 1000
_RUNAWAY = 2**20


def patterns(node: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every `pattern` and every key of `patternProperties`, with its path; no recursion, since depth is a client's."""
    stack: list[tuple[str, Any]] = [(path, node)]
    while stack:
        place, value = stack.pop()
        if isinstance(value, list):
            stack.extend((f"{place}[{i}]", item) for i, item in enumerate(value))
        elif isinstance(value, dict):
            if isinstance(value.get("pattern"), str):
                yield f"{place}.pattern", value["pattern"]
            if isinstance(value.get("patternProperties"), dict):
                yield from ((f"{place}.patternProperties", key) for key in value["patternProperties"])
            stack.extend((f"{place}.{key}", item) for key, item in value.items() if isinstance(item, dict | list))


def check_patterns(schema: Any, path: str) -> bool:
    """Whether there are any.

    Raises:
        InvalidRequest: one cannot run, or they are too many.
    """
    count = 0
    for place, pattern in patterns(schema, path):
        count += 1
        if count > MAX_PATTERNS:
            raise InvalidRequest(f"The schema has more than {MAX_PATTERNS} patterns.", param=place)
        check_pattern(pattern, place)
    return bool(count)


def check_pattern(pattern: str, path: str) -> int:
    """Refuses what the engine would take in silence though no ECMAScript engine does, and what would explode.

    Returns:
        The pattern's length with its repetitions written out.

    Raises:
        InvalidRequest: the pattern is refused.
    """
    if len(pattern) > MAX_PATTERN:
        raise InvalidRequest(f"The pattern is longer than {MAX_PATTERN} characters.", param=path)
    before, i, size = "", 0, 1
    while i < len(pattern):
        char = pattern[i]
        if char == "\\":
            before, i = "atom", i + 2
            continue
        if char == "[":
            i = _class_end(pattern, i)
            before = "atom"
            continue
        if char in "*+?":
            lazy = char == "?" and before == "repeated"
            if before in ("", "assertion", "lazy") or (before == "repeated" and not lazy):
                raise InvalidRequest(f"The pattern has nothing to repeat before `{char}` at position {i}.", param=path)
            before, i = "lazy" if lazy else "repeated", i + 1
            continue
        if char == "{":
            size *= _repeat_size(pattern, i)
            if size > _RUNAWAY:
                raise InvalidRequest("The pattern repeats too often.", param=path)
        if char == "(" and pattern[i + 1 : i + 2] == "?":
            i += 1  # the question mark belongs to the group
            before = ""
        else:
            before = {"^": "assertion", "|": "", "(": ""}.get(char, "atom")
        i += 1
    return size + len(pattern)


def _class_end(pattern: str, start: int) -> int:
    i = start + (2 if pattern[start + 1 : start + 2] == "^" else 1)
    while i < len(pattern) and pattern[i] != "]":
        i += 2 if pattern[i] == "\\" else 1
    return i + 1


def _repeat_size(pattern: str, start: int) -> int:
    numbers = pattern[start + 1 : pattern.find("}", start)].split(",")
    return max((int(number) for number in numbers if number.isdecimal() and len(number) < 10), default=1) or 1
