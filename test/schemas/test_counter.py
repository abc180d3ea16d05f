"""What is counted before a value is judged is never less than what the validator then does."""

import random
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mellea_responses.schemas.cost import Cost, _tags_first
from mellea_responses.schemas.counter import Counter
from mellea_responses.schemas.places import Graph
from mellea_responses.schemas.references import NotJudgeable

Json = dict[str, Any]
_VISIT = "visit"
_MOST = 100_000


class Visits:
    """A keyword that fits everything and counts how often it is asked."""

    count = 0

    def __init__(self, _schema: Json, _value: Any, _path: list[str | int]) -> None: ...

    def validate(self, _instance: Any) -> None:
        Visits.count += 1


class Writer:
    """Writes schemas that refer to each other in every way, and values for them."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.names = [f"n{i}" for i in range(source.randint(1, 5))]

    def schema(self) -> Json:
        root = self._node(2)
        root["$defs"] = {name: {**self._node(2), "$anchor": f"at-{name}"} for name in self.names}
        return root

    def value(self, depth: int = 5) -> Any:
        chance = self.source.random()
        if depth == 0 or chance < 0.1:
            return self.source.choice([1, "x", None, True, {}, []])
        if chance < 0.25:
            return [self.value(depth - 1) for _ in range(self.source.randint(1, 3))]
        value = {name: self.value(depth - 1) for name in self.source.sample("abcd", self.source.randint(1, 3))}
        return {**value, "tag": self.source.choice(["x", "y", "z", 5])} if self._likely(0.5) else value

    def _likely(self, chance: float) -> bool:
        return self.source.random() < chance

    def _inner(self, depth: int) -> Json:
        if depth > 0 and self._likely(0.5):
            return self._node(depth - 1)
        if self._likely(0.3):
            return {_VISIT: 1, "allOf": [self._reference() for _ in range(self.source.randint(1, 3))]}
        return self._reference()

    def _reference(self) -> Json:
        name = self.source.choice(self.names)
        spelling = self.source.choice(["#/$defs/{}", "#/$defs/{}", "#at-{}", "#/$defs/%6e{}"])
        return {_VISIT: 1, "$ref": spelling.format(name[1:] if "%6e" in spelling else name)}

    def _node(self, depth: int) -> Json:
        names = self.source.sample("abc", self.source.randint(1, 3))
        node: Json = {_VISIT: 1, "properties": {name: self._inner(depth) for name in names}}
        for key in ("items", "additionalProperties", "unevaluatedProperties"):
            if self._likely(0.15):
                node[key] = self._inner(depth)
        if self._likely(0.2):
            node["anyOf"] = [{_VISIT: 1, "properties": {"a": {"allOf": [self._inner(0), False]}}}, self._inner(0)]
        if self._likely(0.2):
            node |= {"if": {_VISIT: 1}, "then": self._inner(0)}
        if self._likely(0.2):
            node["type"] = self.source.choice(["object", "array", ["object", "null"], ["string", "array"]])
        if self._likely(0.4):
            node["properties"]["tag"] = {_VISIT: 1, **self.source.choice([{"const": "x"}, {"enum": ["x", "z"]}])}
            node |= {"additionalProperties": False} if self._likely(0.6) else {}
            node |= {"required": ["a", "tag"]} if self._likely(0.4) else {}
        return node


@given(st.integers(0, 2**32), st.booleans())
def test_no_schema_is_visited_more_often_than_was_counted(seed: int, tagged: bool) -> None:
    writer = Writer(random.Random(seed))
    schema, value = writer.schema(), writer.value()
    try:
        graph = Graph(schema, backtracks=0)
        units = Counter(graph, tagged=tagged).count(value, _MOST)
    except NotJudgeable:
        return
    validator = jsonschema_rs.validator_for(schema, keywords={_VISIT: Visits})
    Visits.count = 0

    validator.is_valid(_tags_first(value, graph.tags) if tagged else value)

    assert Visits.count <= units


@given(st.integers(0, 2**32))
def test_the_most_that_any_place_costs_is_no_less_than_what_each_costs(seed: int) -> None:
    writer = Writer(random.Random(seed))
    schema, value = writer.schema(), writer.value()
    try:
        counter = Counter(Graph(schema, backtracks=0))
        most = counter.most()
        units = counter.count(value, _MOST)
    except NotJudgeable:
        return

    assert most is None or units <= most[0] * _places(value) + most[1] * _letters(value)


def _places(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_places, inner))


def _letters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_letters, inner)) + (sum(map(len, value)) if isinstance(value, dict) else 0)


def expressions(kinds: int) -> Json:
    """Trees whose nodes are of so many kinds, each with two optional nodes below."""
    below = {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}
    defs: Json = {
        f"kind{i}": {
            "type": "object",
            "properties": {"left": below, "right": below, "kind": {"const": f"kind{i}"}},
            "required": ["kind", "left", "right"],
            "additionalProperties": False,
        }
        for i in range(kinds)
    }
    return {
        "$ref": "#/$defs/node",
        "$defs": {"node": {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in defs]}, **defs},
    }


def test_a_tree_of_many_kinds_costs_what_its_own_kinds_cost() -> None:
    tree: Any = None
    for i in range(12):
        tree = {"left": tree, "right": tree if i < 6 else None, "kind": f"kind{i}"}
    cost = Cost(Graph(expressions(30), backtracks=0))

    ordered = cost.check(tree, 10_000)

    assert ordered == tree
    assert list(ordered) == ["kind", "left", "right"]


def test_a_tree_whose_kinds_cannot_be_told_apart_costs_all_of_them_at_each_step() -> None:
    schema = expressions(30)
    for kind in schema["$defs"].values():
        if "properties" in kind:
            kind["properties"]["kind"] = {"type": "string"}
    tree: Any = None
    for _ in range(12):
        tree = {"left": tree, "right": None, "kind": "x"}

    with pytest.raises(NotJudgeable):
        Cost(Graph(schema, backtracks=0)).check(tree, 1000)
