"""Arguments written without JSON's quotes, as JSON of the types their schema allows."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Schemas = Mapping[str, Mapping[str, Any]]
"""Tool name to the JSON Schema of its parameters."""


def tool_schemas(tools: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What is known about the arguments of each tool; chat-shaped and flat declarations alike."""
    schemas: dict[str, dict[str, Any]] = {}
    for tool in tools:
        function = tool.get("function") or tool
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            parameters = function.get("parameters")
            schemas[function["name"]] = dict(parameters) if isinstance(parameters, Mapping) else {}
    return schemas


def types_of(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """JSON types a schema allows, as far as it says; empty when it does not say.

    A client wrote it and nobody has judged it: each place is looked at once, whatever refers to it, and nothing in it
    need have the type it should.
    """
    types: set[str] = set()
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        place = waiting.pop()
        if not isinstance(place, Mapping) or id(place) in seen:
            continue
        seen.add(id(place))
        if isinstance(ref := place.get("$ref"), str):
            waiting.append(_resolve(ref, root))
            continue
        declared = place.get("type")
        own = {name for name in [declared, *_listed(declared)] if isinstance(name, str)}
        choices = [choice for union in ("anyOf", "oneOf", "allOf") for choice in _listed(place.get(union))]
        if not own and not choices:
            values = [*_listed(place.get("enum")), *([place["const"]] if "const" in place else ())]
            own = {_type_name(value) for value in values}
        types |= own
        waiting += choices
    return types


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _resolve(ref: str, root: Mapping[str, Any]) -> Any:
    at: Any = root
    for part in ref.removeprefix("#/").split("/"):
        at = at.get(part) if isinstance(at, Mapping) else None
    return at


def _type_name(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def to_json(raw: str, types: set[str]) -> str:
    """One value written without JSON's quotes, as JSON of a type the schema allows, or as a string."""
    text = raw.strip()
    if types - {"string"}:
        if (written := _as_written(text, types)) is not None:
            return written
        if "boolean" in types and text.lower() in ("true", "false"):
            return text.lower()
        if "null" in types and text.lower() in ("null", "none"):
            return "null"
    return json.dumps(raw, ensure_ascii=False)


def _as_written(text: str, types: set[str]) -> str | None:
    """`text` itself where it is JSON of an allowed type already."""
    try:
        value = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    kind = _type_name(value)
    if kind == "number" and "number" not in types and value.is_integer():
        return str(int(value)) if "integer" in types else None
    if kind == "string":
        return None if "string" in types else text
    return text if kind in types or (kind == "integer" and "number" in types) else None


def refuse(constant: str) -> Any:
    """`NaN` and the infinities, which Python reads and JSON does not have."""
    raise ValueError(constant)
