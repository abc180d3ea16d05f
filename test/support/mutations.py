"""Every way in which one field of a JSON body can be wrong: pure, and in the same order each time."""

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]

_TWICE = "\0twice"  # behind a key that stands in the text a second time
_LONG = "Long. " * 20_000
_OTHERS: tuple[Any, ...] = ("x", "", 7, -1, 0.5, True, [], {}, [None], ["x"], [[]], {"x": 1}, {"type": "x"}, [{}])
_SIZES: dict[type, tuple[Any, ...]] = {
    str: (_LONG, "🌊" * 3000, "\0", '\\"\n\u2028', "../../etc/hostname", "a" * 513, "data:," + _LONG),
    int: (10**30, -(10**30), 2**63, -1, 0, 1e308, -0.0, 2**53 + 1),
    float: (1e308, -1e308, 1e-320, 10**400),
}
_DEPTHS = (1, 30, 3000)


@dataclass(frozen=True)
class Mutation:
    """One wrong body: what is done and where. The bytes are only made when they are asked for."""

    kind: str
    path: Path
    body: Any
    change: "Change"

    def __str__(self) -> str:
        return f"{self.kind} {show(self.path)}"

    @property
    def content(self) -> bytes:
        """The bytes that go out."""
        made = deepcopy(self.body)
        self.change(get(made, self.path[:-1]), self.path[-1])
        return _encode(made)


Change = Callable[[Any, Any], None]
"""Changes one entry of a list or an object in place."""


def mutations(body: Any) -> Iterator[Mutation]:
    """Every mutation of every field."""
    for path in places(body):
        for kind, change in _changes(get(body, path)):
            yield Mutation(kind, path, body, change)


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every field and element, the outermost first."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from places(inner, (*path, key))


def _changes(old: Any) -> Iterator[tuple[str, Change]]:
    yield "drop", lambda parent, key: parent.pop(key)
    if old is not None:
        yield "null", _put(None)
    for other in _OTHERS:
        if type(other) is not type(old) or not other:
            yield f"retype to {json.dumps(other)}", _put(other)
    yield "duplicate", _duplicate
    yield from _reorder(old)
    for depth in _DEPTHS:
        yield f"nest in {depth} lists", _put(_Nested(old, depth, "[", "]"))
        yield f"nest in {depth} objects", _put(_Nested(old, depth, '{"type":', "}"))
    yield from _enlarge(old)


def _put(value: Any) -> Change:
    return lambda parent, key: parent.__setitem__(key, value)


def _duplicate(parent: Any, key: Any) -> None:
    if isinstance(parent, list):
        parent.insert(key, deepcopy(parent[key]))
    else:
        parent[f"{key}{_TWICE}"] = None


def _reorder(old: Any) -> Iterator[tuple[str, Change]]:
    if isinstance(old, list) and len(old) > 1:
        yield "reverse", _put(old[::-1])
        yield "rotate", _put(old[1:] + old[:1])
    elif isinstance(old, dict) and len(old) > 1:
        yield "reverse", _put(dict(reversed(old.items())))


def _enlarge(old: Any) -> Iterator[tuple[str, Change]]:
    if isinstance(old, list):
        yield "enlarge to 300 times", _put(old * 300)
    elif isinstance(old, dict):
        yield "enlarge by 300 keys", _put({**old, **{f"key {i}": i for i in range(300)}})
    for big in _SIZES.get(type(old), ()):
        yield f"enlarge to {str(big)[:20]!r}", _put(big)


class _Nested:
    """A value inside many lists or objects; encoded by hand, since the encoder would not go so deep."""

    def __init__(self, value: Any, depth: int, before: str, after: str) -> None:
        self._parts = (value, depth, before, after)

    @property
    def text(self) -> str:
        value, depth, before, after = self._parts
        return before * depth + json.dumps(value) + after * depth

    def __deepcopy__(self, memo: Any) -> "_Nested":
        return self


def _encode(body: Any) -> bytes:
    deep: list[str] = []

    def stand_in(value: _Nested) -> str:
        deep.append(value.text)
        return f"\0deep {len(deep) - 1}"

    text = json.dumps(body, default=stand_in).replace(json.dumps(_TWICE)[1:-1], "")
    return re.sub(r'"\\u0000deep (\d+)"', lambda match: deep[int(match[1])], text).encode()


def get(body: Any, path: Path) -> Any:
    for key in path:
        body = body[key]
    return body


def show(path: Path) -> str:
    """A path as errors name it."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


def names_a_place(param: str, body: Any) -> bool:
    """Whether `param` leads to something in the body; only what it names last may be missing."""
    node: Any = body
    keys = re.findall(r"\[(\d+|\.\.\.)\]|([^.\[\]]+)", param)
    for number, (index, name) in enumerate(keys):
        last = number == len(keys) - 1
        if index == "...":
            return isinstance(node, dict)
        if index and isinstance(node, list) and int(index) < len(node):
            node = node[int(index)]
        elif name and isinstance(node, dict) and name in node:
            node = node[name]
        else:
            return last and not index
    return bool(keys)
