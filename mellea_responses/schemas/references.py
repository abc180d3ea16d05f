"""Where the references of a schema lead: always to a place inside it, by pointer, by name or by `$id`."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urljoin

Node = dict[str, Any]

DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are no schemas, whatever they look like."""
NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"})
"""Those whose values are schemas by name."""
SAME = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
"""Those whose schemas judge the same value."""
REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_PARTS = frozenset(
    {"items", "prefixItems", "additionalItems", "contains", "unevaluatedItems", "unevaluatedProperties"}
    | {"additionalProperties", "propertyNames"}
)
_KNOWN = SAME | _PARTS | NAMED
_PLAIN_ID = re.compile(r"(?:https?://[\w.:-]+/|urn:[\w:-]+|/)?[\w-]*(?:[./][\w-]+)*#?")
"""An `$id` inside a schema that every resolver reads alike."""


class NotJudgeable(Exception):
    """The schema is too involved to be judged by, or the value to be judged; says why."""


def schemas_of(key: str, value: Any) -> list[Any]:
    """The schemas under a keyword: one, a list of them, or named ones."""
    if isinstance(value, list):
        return value
    return list(value.values()) if key in NAMED and isinstance(value, dict) else [value]


def schemas(node: Any, path: str) -> Iterator[tuple[str, Node]]:
    """Every schema in one, with its path; no recursion, since depth is a client's."""
    waiting: list[tuple[str, Any, bool]] = [(path, node, False)]
    while waiting:
        place, value, named = waiting.pop()  # whether its keys are names that somebody chose
        if isinstance(value, list):
            waiting.extend((f"{place}[{i}]", item, False) for i, item in enumerate(value))
        elif isinstance(value, dict):
            if not named:
                yield place, value
            waiting.extend(
                (f"{place}.{key}", item, not named and key in NAMED)
                for key, item in value.items()
                if isinstance(item, dict | list) and (named or key not in DATA)
            )


class References:
    """Every place of a schema that can be referred to.

    Args:
        root: The schema; need not be a valid one.

    Raises:
        NotJudgeable: an `$id` inside it could be read in two ways.
    """

    def __init__(self, root: Node) -> None:
        self._old = "draft-04" in str(root.get("$schema"))
        self._bases: dict[int, str] = {}
        self._resources: dict[str, Node] = {"": root}
        self._anchors: dict[str, Node] = {}
        self._ids: list[str] = []
        for node, base, known in self._walk(root):
            self._note(node, base, known, inner=node is not root)

    def target(self, node: Node, reference: str) -> Any:
        """The schema that a reference leads to.

        Args:
            node: The schema it stands in.
            reference: As written.

        Raises:
            NotJudgeable: it does not lead to a schema inside.
        """
        address, _, fragment = _join(self._bases.get(id(node), ""), reference).partition("#")
        at: Any = self._resources.get(address)
        try:
            if not fragment or fragment.startswith("/"):
                for name in unquote(fragment).split("/")[1:]:
                    at = at[int(name) if isinstance(at, list) else name.replace("~1", "/").replace("~0", "~")]
            else:
                at = self._anchors[f"{address}#{unquote(fragment)}"]
        except (LookupError, TypeError, ValueError):
            at = None
        if not isinstance(at, bool) and id(at) not in self._bases:
            raise NotJudgeable(f"the reference {reference[:80]!r} does not lead to a schema inside it")
        return at

    def _walk(self, root: Node) -> Iterator[tuple[Node, str, bool]]:
        """Every schema with the address it is relative to, and whether a keyword that we know holds it."""
        waiting: list[tuple[Any, str, bool]] = [(root, "", True)]
        while waiting:
            node, base, known = waiting.pop()
            if isinstance(node, list):
                waiting.extend((item, base, known) for item in node)
            elif isinstance(node, dict):
                yield node, base, known
                base = self._bases[id(node)]
                for key, value in node.items():
                    if key in NAMED and isinstance(value, dict):
                        waiting.extend((item, base, known) for item in value.values())
                    elif key not in DATA and isinstance(value, dict | list):
                        waiting.append((value, base, known and key in _KNOWN))

    def _note(self, node: Node, base: str, known: bool, *, inner: bool) -> None:
        name = node.get("id" if self._old else "$id")
        if isinstance(name, str) and name.startswith("#"):
            self._anchor(base, name[1:], node)
        elif isinstance(name, str):
            self._ids.append(name)
            base = _join(base, name.removesuffix("#"))
            if inner and (not known or "$ref" in node or not all(map(_PLAIN_ID.fullmatch, self._ids))):
                raise NotJudgeable(f"the `$id` {name[:80]!r} inside it is not supported")
            if any(base.lower() == other.lower() for other in self._resources):
                raise NotJudgeable(f"the `$id` {name[:80]!r} is there twice")
            self._resources[base] = node
        self._bases[id(node)] = base
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(key), str):
                self._anchor(base, node[key], node)
        if len(self._ids) > 1 and not node.keys().isdisjoint(("$dynamicRef", "$recursiveRef")):
            raise NotJudgeable("a dynamic reference in it and an `$id` inside it do not go together")

    def _anchor(self, base: str, name: str, node: Node) -> None:
        if self._anchors.setdefault(f"{base}#{name}", node) is not node:
            raise NotJudgeable(f"the name {name[:80]!r} is there twice")


def _join(base: str, reference: str) -> str:
    return base + reference if reference.startswith("#") else urljoin(base, reference)
