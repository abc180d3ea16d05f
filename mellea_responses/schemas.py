"""JSON Schemas from requests: judged before anything runs, in bounded time and memory, and never fetched.

A schema names its patterns; they run on a linear-time engine where they can, with a backtracking limit elsewhere.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from mellea_responses.errors import InvalidRequest

MAX_BYTES = 512 * 1024
MAX_PATTERN = 4096
_RUNAWAY = 2**20


class Schema:
    """A compiled schema.

    Args:
        schema: The client's own, unchanged.
        path: Where it stands in the request, for error messages.

    Raises:
        InvalidRequest: it is no valid schema, has a reference to nowhere or outside, or a pattern that cannot run.
    """

    def __init__(self, schema: dict[str, Any], path: str) -> None:
        import jsonschema_rs  # three megabytes that a server without schemas never needs

        patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=2**20, dfa_size_limit=2**20)
        try:
            if len(msgspec.json.encode(schema)) > MAX_BYTES:
                raise InvalidRequest(f"The schema is larger than {MAX_BYTES} bytes.", param=path)
            for place, pattern in _patterns(schema, path):
                _check_pattern(pattern, place)
            self._validator = jsonschema_rs.validator_for(schema, offline=True, pattern_options=patterns)
        except jsonschema_rs.ValidationError as exc:
            raise InvalidRequest(
                f"Invalid JSON Schema: {exc.message[:200]}.", param=_join(path, exc.instance_path)
            ) from None
        except (jsonschema_rs.ReferencingError, ValueError, RecursionError) as exc:
            reason = "nested too deeply" if "ecursion" in str(exc) or isinstance(exc, RecursionError) else str(exc)
            raise InvalidRequest(f"Invalid JSON Schema: {reason[:200]}.", param=path) from None

    def complaint(self, value: Any) -> str | None:
        """What is wrong with `value`, in a sentence that names the place; None when it fits."""
        try:
            error = next(iter(self._validator.iter_errors(value)), None)
        except ValueError as exc:  # a pattern over its backtracking limit
            return str(exc)[:200]
        if error is None:
            return None
        place = _join("", error.instance_path).lstrip(".")
        return f"{error.message[:200]}{f' at {place}' if place else ''}"


def _join(path: str, parts: list[str | int]) -> str:
    return path + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _patterns(node: Any, path: str) -> Iterator[tuple[str, str]]:
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


def _check_pattern(pattern: str, path: str) -> None:
    """Refuses what the engine would take in silence though no ECMAScript engine does, and what would explode."""
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
        if char in "*+?" and before in ("", "assertion"):
            raise InvalidRequest(f"The pattern has nothing to repeat before `{char}` at position {i}.", param=path)
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


def _class_end(pattern: str, start: int) -> int:
    i = start + (2 if pattern[start + 1 : start + 2] == "^" else 1)
    while i < len(pattern) and pattern[i] != "]":
        i += 2 if pattern[i] == "\\" else 1
    return i + 1


def _repeat_size(pattern: str, start: int) -> int:
    numbers = pattern[start + 1 : pattern.find("}", start)].split(",")
    return max((int(number) for number in numbers if number.isdecimal() and len(number) < 10), default=1) or 1
