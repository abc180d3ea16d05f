"""Counts the units of one judgement: every place that looks at a value, all alternatives and references followed."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Any

from mellea_responses.schemas.places import Graph, Place
from mellea_responses.schemas.references import NotJudgeable

_STEPS = 200_000
"""Places of a value and of its schema looked at while counting."""
_TOO_LARGE = "the value is too large to be judged by this schema"
_LEVELS = 300
"""Kinds of places looked at for the most that any can cost."""
_ODD = 15
"""Times that a very large or very small number costs more."""
_COMPARED, _PART = 20, 8
"""Units of telling an item from all others, and each part of it."""

_KINDS = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null", int: "number"}
Tags = tuple[int, frozenset[tuple[str, str]]]
"""How many properties an object has, and those of them that are tags."""
Judges = frozenset[tuple[int, int]]
"""What judges a value: the rank of each place and how often it does."""
NOBODY: Judges = frozenset()
Inner = tuple[str | None, type | str | Tags]
"""A part of a value: the name of a property that has a schema of its own, and its type."""


class Level:
    """Everything that judges one value of one type, all references and alternatives taken together.

    Attributes:
        every: Units for any such value.
        plain: Whether that is all.
        others: As in `Place`, for all of them.
    """

    __slots__ = (
        *("every", "plain", "items", "key_reads", "keys", "lengths", "named", "names", "numbers", "reads", "unique"),
        *("values", "inner"),
    )

    def __init__(self) -> None:
        self.every = self.keys = self.reads = self.key_reads = self.lengths = self.numbers = self.unique = 0
        self.plain = False
        self.named: dict[str, dict[int, int]] = {}
        self.values: dict[int, int] = {}
        self.names = self.items = NOBODY
        self.inner: dict[Inner, Level] = {}

    def of_property(self, name: str | None) -> Judges:
        """What judges the property of that name; None stands for those that have no schema of their own."""
        judges = dict(self.values)
        for rank, times in () if name is None else self.named[name].items():
            _add(judges, rank, times)
        return frozenset(judges.items())


class Counter:
    """Counts what judging costs.

    Args:
        graph: The places of a schema.
        tagged: Whether the tags of each object come first, so that what has another tag is done with at once.
        whole: Whether a place is looked at in full, whatever does not fit.
    """

    def __init__(self, graph: Graph, *, tagged: bool = False, whole: bool = False) -> None:
        self._ranked, self._tagged, self._whole = graph.ranked, tagged, whole
        self._tags = graph.tags if tagged else frozenset()
        self._root: Judges = frozenset([(graph.root.rank, 1)])
        self._levels: dict[tuple[Judges, str | Tags], Level] = {}
        self._left = _STEPS

    def count(self, value: Any, limit: int) -> int:
        """Units.

        Raises:
            NotJudgeable: they are too many.
        """
        units, self._left = 0, _STEPS
        waiting = [(self._level(self._root, self._kind(value)), value)]
        while waiting:
            level, part = waiting.pop()
            units += level.every
            inner: Iterable[tuple[str | None, Any]] = ()
            if isinstance(part, dict):
                letters = sum(map(len, part))
                units += level.keys * len(part) + level.key_reads * letters
                if level.names:
                    names = self._level(level.names, "string")
                    units += names.every * len(part) + (names.reads + names.lengths) * letters
                if level.named or level.values:
                    inner = part.items()
            elif isinstance(part, list):
                if level.unique:
                    places, letters = measure(part, limit // _PART)
                    units += level.unique * (_COMPARED * len(part) + _PART * places + letters)
                if level.items:
                    inner = [(None, one) for one in part]
            elif isinstance(part, str):
                units += level.reads * len(part) + level.lengths * len(part) // 4
            elif level.numbers:
                units += level.numbers * _oddness(part)
            for name, one in inner:
                key = name if name in level.named else None, self._kind(one) if self._tagged else type(one)
                below = level.inner.get(key) or self._below(level, key, one)
                if below.plain:
                    units += below.every
                else:
                    waiting.append((below, one))
            self._step(len(part) if inner else 0)
            if units > limit:
                raise NotJudgeable(_TOO_LARGE)
        return units

    def _step(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise NotJudgeable(_TOO_LARGE)

    def _below(self, level: Level, key: Inner, value: Any) -> Level:
        """Everything that judges an item, or a property."""
        judges = level.items or level.of_property(key[0])
        level.inner[key] = found = self._level(judges, self._kind(value))
        return found

    def _kind(self, value: Any) -> str | Tags:
        if self._tagged and isinstance(value, dict):
            return len(value), frozenset((name, value[name]) for name in self._tags if isinstance(value.get(name), str))
        return _KINDS.get(type(value), "number")

    def most(self) -> tuple[int, int] | None:
        """Units that one place of a value can cost at most, for itself and each of its characters; None if unknown."""
        visits = reads = keys = key_reads = 0
        self._left = _STEPS
        seen: set[Judges] = set()
        waiting = [self._root]
        while waiting:
            judges = waiting.pop()
            if judges in seen:
                continue
            seen.add(judges)
            for kind in _KINDS.values():
                level = self._level(judges, kind)
                if level.unique or len(seen) > _LEVELS:
                    return None
                visits = max(visits, level.every + level.numbers * _ODD)
                reads = max(reads, level.reads + level.lengths)
                keys, key_reads = max(keys, level.keys), max(key_reads, level.key_reads)
                waiting += [level.of_property(name) for name in level.named]
                waiting += [level.of_property(None), level.items, level.names]
        # A key costs what its object has for keys, and what judges it as a text.
        return visits * 2 + keys, reads + key_reads

    def _level(self, judges: Judges, kind: str | Tags) -> Level:
        level = self._levels.get((judges, kind))
        if level is None:
            level = self._levels[judges, kind] = self._gather(judges, kind)
        return level

    def _gather(self, judges: Judges, kind: str | Tags) -> Level:
        """Adds up all that judges a value because of these, each after all that lead to it."""
        level = Level()
        items: dict[int, int] = {}
        names: dict[int, int] = {}
        often = dict(judges)
        order = [-rank for rank in often]
        heapify(order)
        while order:
            rank = -heappop(order)
            place, times = self._ranked[rank], often[rank]
            self._step(1 + len(place.named) + len(place.values) + len(place.items) + len(place.same))
            level.every += times * place.visits
            other = isinstance(kind, tuple) and _has_other_tag(place, *kind)
            if isinstance(kind, tuple) or kind == "object":
                level.keys += times * place.keys
                level.key_reads += times * place.key_reads
                for name, inner in place.named.items():
                    if not other or name in self._tags:
                        _add(level.named.setdefault(name, {}), inner.rank, times)
                for inner in () if other else place.values:
                    _add(level.values, inner.rank, times)
                for inner in () if other else place.names:
                    _add(names, inner.rank, times)
            elif kind == "array":
                level.unique += times * place.unique
                for inner in place.items:
                    _add(items, inner.rank, times)
            elif kind == "string":
                level.reads += times * place.reads
                level.lengths += times * place.lengths
            elif kind == "number":
                level.numbers += times * place.numbers
            wrong = place.types is not None and ("object" if isinstance(kind, tuple) else kind) not in place.types
            if not other and (self._whole or not wrong):
                for inner, again in place.same:
                    if inner.rank not in often:
                        heappush(order, -inner.rank)
                    _add(often, inner.rank, times * again)
        level.items, level.names = frozenset(items.items()), frozenset(names.items())
        level.plain = not judges or (
            kind in ("string", "number", "boolean", "null") and not (level.reads or level.lengths or level.numbers)
        )
        return level


def _has_other_tag(place: Place, count: int, tags: frozenset[tuple[str, str]]) -> bool:
    """Whether an object has a tag that a place does not take, whose properties are looked at in the object's order."""
    if not place.tags or not (place.closed or count <= len(place.named)):
        return False
    return any(name in place.tags and text not in place.tags[name] for name, text in tags)


def _add(numbers: dict[int, int], key: int, more: int) -> None:
    numbers[key] = numbers.get(key, 0) + more


def _oddness(number: float) -> int:
    """How much more than usual a number costs."""
    if isinstance(number, int):
        bits = number.bit_length()
        return 1 if bits <= 53 else _ODD * (1 + bits // 1024)
    return 1 if number == 0 or 1e-15 < abs(number) < 1e15 else _ODD


def measure(value: Any, most: int) -> tuple[int, int]:
    """How many places a value has, and how many characters its texts and keys.

    Args:
        value: As decoded from JSON.
        most: Places after which it does not matter how many more there are.
    """
    places = letters = 0
    waiting = [value]
    while waiting and places <= most:
        part = waiting.pop()
        kind = type(part)
        places += 1
        if kind is str:
            letters += len(part)
        elif kind is list:
            waiting += part
        elif kind is dict:
            letters += sum(map(len, part))
            waiting += part.values()
        elif kind is int:
            places += part.bit_length() // 1024  # a very long number counts for more
    return places, letters
