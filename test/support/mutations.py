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
    """One wrong body: what was done, where, and the bytes that go out."""

    kind: str
    path: Path
    content: bytes

    def __str__(self) -> str:
        return f"{self.kind} {show(self.path)}"


def mutations(body: Any) -> Iterator[Mutation]:
    """Every mutation of every field."""
    for path in places(body):
        for kind, made in _at(body, path):
            yield Mutation(kind, path, _encode(made))


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every field and element, the outermost first."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from places(inner, (*path, key))


def _at(body: Any, path: Path) -> Iterator[tuple[str, Any]]:
    *_, key = path
    old = get(body, path)
    yield "drop", _changed(body, path, lambda parent: parent.pop(key))
    if old is not None:
        yield "null", _set(body, path, None)
    for other in _OTHERS:
        if type(other) is not type(old) or not other:
            yield f"retype to {json.dumps(other)}", _set(body, path, other)
    yield "duplicate", _changed(body, path, lambda parent: _duplicate(parent, key))
    yield from _reorder(body, path, old)
    for depth in _DEPTHS:
        yield f"nest in {depth} lists", (_set(body, path, _Nested(old, depth, "[", "]")))
        yield f"nest in {depth} objects", (_set(body, path, _Nested(old, depth, '{"type":', "}")))
    yield from _enlarge(body, path, old)


def _duplicate(parent: Any, key: Any) -> None:
    if isinstance(parent, list):
        parent.insert(key, deepcopy(parent[key]))
    else:
        parent[f"{key}{_TWICE}"] = None


def _reorder(body: Any, path: Path, old: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(old, list) and len(old) > 1:
        yield "reverse", _set(body, path, old[::-1])
        yield "rotate", _set(body, path, old[1:] + old[:1])
    elif isinstance(old, dict) and len(old) > 1:
        yield "reverse", _set(body, path, dict(reversed(old.items())))


def _enlarge(body: Any, path: Path, old: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(old, list):
        yield "enlarge to 300 times", _set(body, path, old * 300)
    elif isinstance(old, dict):
        yield "enlarge by 300 keys", _set(body, path, {**old, **{f"key {i}": i for i in range(300)}})
    for big in _SIZES.get(type(old), ()):
        yield f"enlarge to {str(big)[:20]!r}", _set(body, path, big)


class _Nested:
    """A value inside many lists or objects; encoded by hand, since the encoder would not go so deep."""

    def __init__(self, value: Any, depth: int, before: str, after: str) -> None:
        self.text = before * depth + json.dumps(value) + after * depth


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


def _set(body: Any, path: Path, value: Any) -> Any:
    return _changed(body, path, lambda parent: parent.__setitem__(path[-1], value))


def _changed(body: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    made = deepcopy(body)
    change(get(made, path[:-1]))
    return made


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
