"""A schema as a graph of places, each with what it costs to visit it and what it leads to.

A validator goes through alternatives and references one by one, so that a schema of a few lines can make it visit one
value a billion times, or compile for ever.
"""

from typing import Any

from mellea_responses.schemas.patterns import check_pattern, goes_back
from mellea_responses.schemas.references import REFERENCES, SAME, Node, NotJudgeable, References, schemas_of

MAX_PLACES = 20_000
"""Schemas in a schema, and those that may judge one value, all references followed."""
_DEEP = 64
"""Schemas inside or behind each other that judge the same value."""
_MAX_LEFT_OVER = 1000
"""What `unevaluatedProperties` and `unevaluatedItems` look through: it is compiled anew for each way to it."""
_NAMED_LEFT_OVER = 7
"""Units of each property where something is left over."""
_BACK = 10
"""Times that a pattern goes back over one character in one unit."""
_VALUES = frozenset({"additionalProperties", "patternProperties", "unevaluatedProperties"})
_ITEMS = frozenset({"items", "prefixItems", "additionalItems", "contains", "unevaluatedItems"})
_UNTAGGED = frozenset({"patternProperties", "unevaluatedProperties", "$ref"})
_LENGTHS = frozenset({"minLength", "maxLength", "contentMediaType", "contentEncoding"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_NOTES = frozenset({"type", "title", "description", "default", "examples", "$defs", "definitions"})
_NUMBER, _FLOAT, _MULTIPLE, _REAL = 8, 120, 200, 300
"""Units of comparing a small integer, of a bound that is none, of dividing, and of telling two such numbers apart."""
_SAFE = 2**53


class Place:
    """One schema.

    Attributes:
        rank: Places that judge the same value come after those that lead to them.
        types: Those it says no others pass, if it says so: what is of another is not compared with `same`.
        tags: Properties that must be one of some texts; where one is another, the rest is not looked at.
        closed: Whether it takes no other properties than those it names.
        visits: Units for any value.
        keys: Units for each key of an object.
        reads: Units for each character of a text, `key_reads` of a key.
        lengths: How often characters are only counted.
        numbers: Units for a number.
        unique: How often items are compared with each other.
        same: What judges the same value, and how often.
        named: What judges a property, `values` any of them, `names` their keys, `items` what is in an array.
        spread: How many places judge a value because this one does, itself included.
    """

    __slots__ = (
        *("rank", "types", "tags", "closed", "visits", "keys", "reads", "key_reads", "lengths", "numbers", "unique"),
        *("same", "named", "values", "names", "items", "spread", "depth", "ways", "left_over"),
    )

    def __init__(self) -> None:
        self.rank = -1
        self.types: frozenset[str] | None = None
        self.visits = 1
        self.keys = self.reads = self.key_reads = self.lengths = self.numbers = self.unique = 0
        self.same: list[tuple[Place, int]] = []
        self.named: dict[str, Place] = {}
        self.values: list[Place] = []
        self.names: list[Place] = []
        self.items: list[Place] = []
        self.spread = self.depth = self.ways = 1
        self.left_over = self.closed = False
        self.tags: dict[str, frozenset[str]] = {}


class Graph:
    """The places of a schema.

    Args:
        schema: A schema; need not be a valid one.
        backtracks: How often a pattern may go back that needs an engine which can; 0 where none does.

    Attributes:
        root: Where judging starts.
        ranked: All places by rank.
        tags: Names of all tags.

    Raises:
        NotJudgeable: it has too many, or one that judges a value without end.
    """

    def __init__(self, schema: Node, *, backtracks: int) -> None:
        self._references, self._backtracks = References(schema), backtracks
        self._places: dict[int, Place] = {}
        self._waiting: list[tuple[Place, Node]] = []
        self.root = self._place(schema)
        while self._waiting:
            self._fill(*self._waiting.pop())
        self.ranked: list[Place] = []
        for place in self._places.values():
            if place.rank < 0:
                self._rank(place, 0)
        ways = sum(place.ways for place in self.ranked if place.left_over)
        if ways > _MAX_LEFT_OVER:
            raise NotJudgeable("what is left over in it for `unevaluatedProperties` takes too long to find")
        if ways:
            for place in self.ranked:
                place.visits += _NAMED_LEFT_OVER * len(place.named)
        self.tags = frozenset(name for place in self.ranked for name in place.tags)

    def _place(self, node: Any) -> Place:
        if isinstance(node, bool):
            return self._places.setdefault(node, Place())
        place = self._places.get(id(node))
        if place is None:
            place = self._places[id(node)] = Place()
            if len(self._places) > MAX_PLACES:
                raise NotJudgeable("it has too many places")
            if isinstance(node, dict):
                self._waiting.append((place, node))
        return place

    def _fill(self, place: Place, node: Node) -> None:
        """What a schema costs and leads to; a keyword of a wrong type is left to whoever checks that."""
        place.left_over = "unevaluatedProperties" in node or "unevaluatedItems" in node
        times = 3 if place.left_over else 1  # to know what is left over, the validator judges again
        place.visits = 1 + len(node) // 4
        for key, value in node.items():
            many = isinstance(value, dict | list)
            if key in SAME:
                inner = schemas_of(key, value)
                place.same += [(self._place(one), times) for one in inner]
                place.visits += _breadth(inner)
            elif key in REFERENCES and isinstance(value, str):
                place.same.append((self._place(self._references.target(node, value)), times))
            elif key == "properties" and isinstance(value, dict):
                place.named = {name: self._place(one) for name, one in value.items()}
                place.keys += 1
                place.ways += len(value) // 50
            elif key in _VALUES or key in _ITEMS:
                inner = [self._place(one) for one in schemas_of(key, value)]
                (place.values if key in _VALUES else place.items).extend(inner)
                place.keys += key in _VALUES
                if key == "patternProperties" and isinstance(value, dict):
                    place.key_reads += sum(map(self._reading, value))
            elif key == "propertyNames":
                place.names.append(self._place(value))
            elif key == "pattern" and isinstance(value, str):
                place.reads += self._reading(value)
            elif not self._assertion(place, key, value) and key not in _NOTES and many:
                place.visits += _breadth(value)
        place.keys, place.key_reads = place.keys * times, place.key_reads * times
        if "type" in node and "$ref" not in node:  # old drafts see nothing beside a reference
            place.types = _types(node["type"])
        place.closed = node.get("additionalProperties") is False
        if isinstance(node.get("additionalProperties", True), bool) and place.named and _UNTAGGED.isdisjoint(node):
            place.tags = {name: texts for name, one in node["properties"].items() if (texts := _texts(one))}

    def _assertion(self, place: Place, key: str, value: Any) -> bool:
        """What a keyword costs that compares, counts or measures; whether it is one."""
        if key == "const" or key == "enum":
            place.visits += 1 if key == "enum" and _is_looked_up(value) else _worth(value)
        elif key in _LENGTHS:
            place.lengths += 1
        elif key in _BOUNDS:
            place.numbers += _NUMBER if _is_usual(value) else _FLOAT
        elif key == "multipleOf":
            place.numbers += _NUMBER if type(value) is int and value < _SAFE else _MULTIPLE
        elif key == "uniqueItems":
            place.unique += 1
        else:
            return False
        return True

    def _reading(self, pattern: str) -> int:
        size = check_pattern(pattern, "")
        return max(size, self._backtracks // _BACK) if self._backtracks and goes_back(pattern) else size

    def _rank(self, place: Place, above: int) -> None:
        """Puts a place after all that judge the same value because of it, and adds those up."""
        if above > _DEEP:
            raise NotJudgeable("it is nested too deeply")
        place.rank = _BUSY
        for inner, _ in place.same:
            if inner.rank == _BUSY:
                raise NotJudgeable("a schema in it refers to itself for the same value, which never ends")
            if inner.rank < 0:
                self._rank(inner, above + 1)
            place.spread += inner.spread
            place.depth = max(place.depth, inner.depth + 1)
            place.ways += inner.ways
        if place.spread > MAX_PLACES or place.depth > _DEEP:
            raise NotJudgeable("it has too many places, with all references followed")
        place.rank = len(self.ranked)
        self.ranked.append(place)


_BUSY = -2


def _types(value: Any) -> frozenset[str] | None:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return frozenset("number" if name == "integer" else name for name in names)


def _texts(node: Any) -> frozenset[str]:
    """The few texts that a property may be, none if it is no tag."""
    if not isinstance(node, dict) or "$ref" in node:
        return frozenset()
    texts = [node["const"]] if "const" in node else node.get("enum")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return frozenset()
    return frozenset(texts)


def _is_usual(value: Any) -> bool:
    return type(value) is int and abs(value) < _SAFE


def _worth(value: Any) -> int:
    """Units of comparing something with a constant, or with each of several."""
    units, waiting = 0, [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            units += _NUMBER * (1 + len(part))
            waiting += part.values()
        elif isinstance(part, list):
            units += _NUMBER
            waiting += part
        elif _is_usual(part) or isinstance(part, str | bool | None):
            units += _NUMBER
        else:
            units += _REAL + int(part).bit_length()
    return units


def _breadth(value: dict[str, Any] | list[Any]) -> int:
    """Names in a keyword's value."""
    inner = value.values() if isinstance(value, dict) else value
    return 2 * (len(value) + sum(len(one) for one in inner if isinstance(one, list)))


def _is_looked_up(values: Any) -> bool:
    """Whether a value is found among these without going through them: they are mere texts, or mere small integers."""
    if not isinstance(values, list):
        return False
    return all(isinstance(value, str) for value in values) or all(_is_usual(value) for value in values)
