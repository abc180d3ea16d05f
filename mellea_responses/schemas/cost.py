"""What it costs to judge a value by a schema, counted before it is done.

A validator goes through alternatives and references one by one, so that a schema of a few lines can make it visit one
value a billion times, and nothing can stop it then. Only references that lead back to where they stand are followed
once for each value. One unit is one visit, about fifty nanoseconds.
"""

from typing import Any, NamedTuple
from urllib.parse import unquote

from mellea_responses.schemas.patterns import check_pattern, goes_back

LIMIT = 5_000_000
"""Units that one judgement may cost: a quarter of a second."""
_BACK = 10
"""Times that a pattern goes back over one character in one unit."""
_STEPS = 20_000
"""Places looked at while counting."""
_LISTED = 10_000
"""Units up to which all that is wrong may be listed; that costs a hundred times what a plain no does."""

Node = dict[str, Any]

_SAME = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
"""Keywords whose schemas judge the same value."""
_PARTS = frozenset(
    {"items", "prefixItems", "additionalItems", "contains", "additionalProperties", "patternProperties"}
    | {"propertyNames", "unevaluatedItems", "unevaluatedProperties"}
)
"""Those whose schemas judge its parts, whatever they are called."""
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_DEEPER = _SAME | _PARTS | _REFERENCES | {"properties", "pattern"}
_NOTES = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"})
_CHAIN = 8
_OTHERS = frozenset({"properties", "$defs", "definitions"})


class TooCostly(Exception):
    """The schema is too involved to be counted, or the value to be judged by it; says why."""


class Level(NamedTuple):
    """Everything that judges one value, all references and alternatives taken together.

    Args:
        visits: Units for any value.
        reads: Units for each character of a text or a key.
        named: What judges its properties by name, each with how often it does.
        wild: What judges any of its parts, likewise.
    """

    visits: int
    reads: int
    named: dict[str, list[tuple[Node, int]]]
    wild: list[tuple[Node, int]]


class Cost:
    """The cost of one schema.

    Args:
        schema: A valid schema.
        backtracks: How often a pattern may go back that needs an engine which can; 0 where none does.

    Raises:
        TooCostly: it cannot be counted.
    """

    def __init__(self, schema: Node, *, backtracks: int) -> None:
        self._root, self._backtracks = schema, backtracks
        self._anchors = _anchors(schema)
        self._steps = _STEPS
        self._levels: dict[int, Level] = {}
        self._most: dict[int, tuple[int, int] | None] = {}
        self._circles: set[int] = set()
        visits, reads = self._most_of(schema)
        again = max(1, len(self._circles))
        self._visits, self._reads = visits * again, reads * again

    def check(self, value: Any, size: int) -> None:
        """Sees to it that a value can be judged.

        Args:
            value: As decoded from JSON.
            size: Bytes of its JSON.

        Raises:
            TooCostly: that would take too long.
        """
        if (self._visits + self._reads) * size > LIMIT:
            places, letters = _measure(value)
            if self._visits * places + self._reads * letters > LIMIT:
                self._count(LIMIT).of(self._root, value)

    def is_listed(self, value: Any) -> bool:
        """Whether all that is wrong with a value may be listed."""
        try:
            self._count(_LISTED).of(self._root, value)
        except TooCostly:
            return False
        return True

    def _count(self, limit: int) -> "_Count":
        return _Count(self._level, limit)

    def _level(self, node: Node) -> Level:
        level = self._levels.get(id(node))
        if level is None:
            found = [0, 0]
            level = Level(0, 0, {}, [])
            self._gather(node, 1, level, found, set())
            level = self._levels[id(node)] = level._replace(visits=found[0], reads=found[1])
        return level

    def _gather(self, node: Any, times: int, level: Level, found: list[int], above: set[int]) -> None:
        """Adds a schema and all that judges the same value with it; the way down guards against circles."""
        if not isinstance(node, dict):
            return
        self._step()
        if id(node) in above:
            raise TooCostly("a schema in it refers to itself for the same value, which never ends")
        above.add(id(node))
        # To know what is left over, the validator judges again.
        inner_times = times * 3 if "unevaluatedProperties" in node or "unevaluatedItems" in node else times
        found[0] += times
        for key, value in node.items():
            if isinstance(value, dict | list):
                found[0] += times * len(value)
            if key in _SAME:
                for inner in _schemas(key, value):
                    self._gather(inner, inner_times, level, found, above)
            elif key in _REFERENCES and isinstance(value, str):
                self._gather(self._target(value), inner_times, level, found, above)
            elif key in _PARTS:
                level.wild.extend((self._meant(inner), times) for inner in _schemas(key, value))
                found[1] += times * (sum(map(self._reading, value)) if key == "patternProperties" else 0)
            elif key == "properties":
                for name, inner in value.items():
                    level.named.setdefault(name, []).append((self._meant(inner), times))
            elif key == "pattern" and isinstance(value, str):
                found[1] += times * self._reading(value)
        above.discard(id(node))

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise TooCostly("it has too many places, with all references followed")

    def _reading(self, pattern: str) -> int:
        size = check_pattern(pattern, "")
        return max(size, self._backtracks // _BACK) if self._backtracks and goes_back(pattern) else size

    def _meant(self, node: Any) -> Any:
        """What a mere reference leads to, so that every one of those to one place is the same."""
        for _ in range(_CHAIN):
            if not isinstance(node, dict) or node.keys() - _NOTES != {"$ref"} or not isinstance(node["$ref"], str):
                break
            node = self._target(node["$ref"])
        return node

    def _target(self, reference: str) -> Any:
        base = self._root.get("$id") or self._root.get("id")
        if isinstance(base, str):
            reference = reference.removeprefix(base.removesuffix("#"))
        reference = unquote(reference)
        if reference in self._anchors:
            return self._anchors[reference]
        at: Any = self._root
        try:
            if reference[:1] not in ("", "#") or reference[1:2] not in ("", "/"):
                raise LookupError
            for name in reference.split("/")[1:]:
                at = at[int(name) if isinstance(at, list) else name.replace("~1", "/").replace("~0", "~")]
        except (LookupError, TypeError, ValueError):
            raise TooCostly(f"the reference {reference[:80]!r} does not lead to a place inside it") from None
        return at

    def _most_of(self, node: Any) -> tuple[int, int]:
        """Units that one place of a value can cost at most, for itself and for each of its characters."""
        if not isinstance(node, dict):
            return 1, 0
        if node.keys().isdisjoint(_DEEPER):  # most places are leaves
            self._step()
            return 1 + sum(len(value) for value in node.values() if isinstance(value, dict | list)), 0
        known = self._most.get(id(node), (0, 0))
        if id(node) in self._most:
            if known is None:
                self._circles.add(id(node))
            return known or (1, 0)
        self._most[id(node)] = None  # met again below, it leads back here
        level = self._level(node)
        visits, reads = level.visits, level.reads
        wild = self._sum(level.wild)
        for parts in level.named.values():
            named = self._sum(parts)
            visits, reads = max(visits, named[0] + wild[0]), max(reads, named[1] + wild[1])
        most = self._most[id(node)] = max(visits, wild[0]), max(reads, wild[1])
        return most

    def _sum(self, parts: list[tuple[Node, int]]) -> tuple[int, int]:
        visits = reads = 0
        for part, times in parts:
            most = self._most_of(part)
            visits, reads = visits + times * most[0], reads + times * most[1]
        return visits, reads


class _Count:
    """One value's cost, where each alternative and each reference is followed every time."""

    def __init__(self, level: Any, limit: int) -> None:
        self._level, self._limit, self._steps = level, limit, _STEPS
        self._known: dict[tuple[int, int], int] = {}

    def of(self, node: Any, value: Any) -> int:
        """Units.

        Raises:
            TooCostly: they are too many.
        """
        if not isinstance(node, dict):
            return 1
        pair = (id(node), id(value))
        if pair in self._known:
            return self._known[pair]
        self._steps -= 1
        level: Level = self._level(node)
        units = level.visits
        if isinstance(value, str):
            units += level.reads * len(value)
        elif isinstance(value, dict):
            units += level.reads * sum(map(len, value))
            for name, part in value.items():
                for inner, times in (*level.named.get(name, ()), *level.wild):
                    units = self._within(units + times * self.of(inner, part))
        elif isinstance(value, list):
            for part in value:
                for inner, times in level.wild:
                    units = self._within(units + times * self.of(inner, part))
        self._known[pair] = self._within(units)
        return units

    def _within(self, units: int) -> int:
        if units > self._limit or self._steps < 0:
            raise TooCostly("the value is too large to be judged by this schema")
        return units


def _measure(value: Any) -> tuple[int, int]:
    """How many places a value has, and how many characters its texts and keys."""
    places = letters = 0
    waiting = [value]
    while waiting:
        part = waiting.pop()
        places += 1
        if isinstance(part, str):
            letters += len(part)
        elif isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            letters += sum(map(len, part))
            waiting += part.values()
    return places, letters


def _schemas(key: str, value: Any) -> list[Any]:
    """The schemas under a keyword: one, a list of them, or named ones."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return []
    return list(value.values()) if key in ("patternProperties", "dependentSchemas", "dependencies") else [value]


def _anchors(root: Node) -> dict[str, Node]:
    """Every place with a name of its own."""
    found: dict[str, Node] = {}
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict):
            continue
        for key, value in node.items():
            if key in _SAME or key in _PARTS:
                waiting += _schemas(key, value)
            elif key in _OTHERS and isinstance(value, dict):
                waiting += value.values()
            elif key in ("$anchor", "$dynamicAnchor") and isinstance(value, str):
                found[f"#{value}"] = node
            elif key in ("$id", "id") and isinstance(value, str) and node is not root:
                if not value.startswith("#"):
                    raise TooCostly("a schema inside it has an `$id` of its own, which is not supported")
                found[value] = node
    return found
