"""The declared tools by name, and how a name that a model wrote finds its one tool."""

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from mellea_responses.wire.tools import CustomTool, FunctionTool, NamespaceTool, Tool, ToolRef, ToolSearchTool

_MARKUP = re.compile(r"<\|.*|<｜.*|[\s(\[{].*", re.DOTALL)
_SEPARATORS = re.compile(r"\.|::|__|/|:")


class Resolved(NamedTuple):
    """One declared tool, as a call of it must be written."""

    name: str
    namespace: str | None
    kind: Literal["function", "custom", "tool_search"]
    strict_schema: dict[str, Any] | None = None

    def is_meant_by(self, ref: ToolRef) -> bool:
        """Whether a choice names this tool."""
        if ref.type == "tool_search":
            return self.kind == "tool_search"
        if ref.type == "namespace":
            return self.namespace == ref.name
        space = ref.namespace if isinstance(ref.namespace, str) else self.namespace
        return self.name == ref.name and self.namespace == space


class Catalog:
    """Tools by name and namespace."""

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        self._tools = [resolved for tool in tools for resolved in _flatten(tool)]
        self._exact = {(tool.namespace, tool.name): tool for tool in self._tools}

    def __iter__(self) -> Iterator[Resolved]:
        return iter(self._tools)

    def resolve(self, name: str, namespace: str | None = None) -> Resolved | None:
        """The one declared tool that a model means by `name`; None if there is none, or more than one.

        Tried in this order: as written; bare, inside any namespace; without markup fused to it; qualified with its
        namespace, or with a prefix that models add by habit (`functions.`).
        """
        exact = self._exact.get((namespace or None, name))
        if exact is not None:
            return exact
        for candidate in _spellings(name):
            found = self._by_spelling(candidate, namespace or None)
            if len(found) == 1:
                return found[0]
        return None

    def _by_spelling(self, name: str, namespace: str | None) -> list[Resolved]:
        exact = self._exact.get((namespace, name))
        if exact is not None:
            return [exact]
        return [
            tool
            for tool in self._tools
            if (namespace is None or tool.namespace in (namespace, None))
            and (name == tool.name or (tool.namespace and _plain(name) == _plain(f"{tool.namespace}.{tool.name}")))
        ]


def _spellings(name: str) -> Iterator[str]:
    yield name
    clean = _MARKUP.sub("", name.strip().strip("`\"'"))
    if clean and clean != name:
        yield clean
    for prefix in ("functions.", "function.", "tools.", "default_api.", "functions:", "to=functions."):
        if clean.startswith(prefix):
            yield clean.removeprefix(prefix)
            yield re.sub(r":\d+$", "", clean.removeprefix(prefix))


def _plain(name: str) -> str:
    """A qualified name with one separator, whichever the model used."""
    return _SEPARATORS.sub(".", name)


def _flatten(tool: Tool) -> Iterator[Resolved]:
    match tool:
        case NamespaceTool():
            for inner in tool.tools:
                yield from (one._replace(namespace=tool.name) for one in _flatten(inner))
        case FunctionTool():
            yield Resolved(tool.name, None, "function", (tool.parameters or {}) if tool.strict else None)
        case CustomTool():
            yield Resolved(tool.name, None, "custom")
        case ToolSearchTool():
            if tool.execution == "client":
                yield Resolved("tool_search", None, "tool_search")
