"""Tools and `tool_choice` in any client's spelling → canonical tools and one choice."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, assert_never

from msgspec import UNSET, Raw

from mellea_responses.errors import InvalidRequest
from mellea_responses.limits import MAX_TOOL_BYTES, MAX_TOOLS, MAX_TOOLS_BYTES
from mellea_responses.wire import params as p
from mellea_responses.wire import tools as t
from mellea_responses.wire.decode import convert, decode_tool_param, read_tool
from mellea_responses.wire.request import ToolChoiceParam
from mellea_responses.wire.shape import Shape, check_number


def normalize_tools(raws: Sequence[Raw] | None, path: str = "tools") -> tuple[tuple[t.Tool, ...], tuple[str, ...]]:
    """The tools a program may offer, and the types of those that nobody here can run.

    Raises:
        InvalidRequest: a tool is broken, or two have one name.
    """
    return _sort(_decoded(raws or (), path), path)


def _decoded(raws: Sequence[Raw], path: str) -> Iterator[p.ToolParam | dict[str, Any]]:
    """The tools one by one, within their limits."""
    check_number(len(raws), MAX_TOOLS, path)
    shape, left = Shape(), MAX_TOOLS_BYTES
    for i, raw in enumerate(raws):
        place, size = f"{path}[{i}]", len(memoryview(raw))
        if size > MAX_TOOL_BYTES:
            raise InvalidRequest(f"A tool may have {MAX_TOOL_BYTES} bytes; this one has {size}.", param=place)
        left -= size
        if left < 0:
            raise InvalidRequest(f"All tools may have {MAX_TOOLS_BYTES} bytes together.", param=path)
        shape.check(raw, place)
        yield decode_tool_param(raw, place)


def normalize_loose_tools(loose: Iterable[dict[str, Any]], path: str) -> tuple[tuple[t.Tool, ...], tuple[str, ...]]:
    """The same for tools that arrive inside an item, already decoded."""
    return _sort((read_tool({"type": "function", **tool}, f"{path}[{i}]") for i, tool in enumerate(loose)), path)


def _sort(params: Iterable[p.ToolParam | dict[str, Any]], path: str) -> tuple[tuple[t.Tool, ...], tuple[str, ...]]:
    tools: list[t.Tool] = []
    unsupported: list[str] = []
    for i, param in enumerate(params):
        if isinstance(param, dict):
            unsupported.append(str(param["type"]))
        else:
            tools.append(_tool(param, f"{path}[{i}]"))
    return tuple(tools), tuple(unsupported)


def count_tools(tools: Iterable[t.Tool]) -> int:
    """How many there are, those inside namespaces included."""
    return sum(len(tool.tools) if isinstance(tool, t.NamespaceTool) else 1 for tool in tools)


def merge_tools(declared: tuple[t.Tool, ...], more: Iterable[t.Tool]) -> tuple[t.Tool, ...]:
    """Declared tools and those that the input adds; a name said again takes the later form, a namespace grows."""
    merged: dict[tuple[str, str], t.Tool] = {}
    for tool in (*declared, *more):
        key = (_kind(tool), tool_name(tool))
        old = merged.get(key)
        if isinstance(tool, t.NamespaceTool) and isinstance(old, t.NamespaceTool):
            inner = {function.name: function for function in (*old.tools, *tool.tools)}
            tool = t.NamespaceTool(name=tool.name, description=tool.description, tools=list(inner.values()))
        merged[key] = tool
    return tuple(merged.values())


def _kind(tool: t.Tool) -> str:
    # A function and a custom tool of one name would be called alike.
    return str(tool.__struct_config__.tag).replace("custom", "function")


def tool_name(tool: t.Tool) -> str:
    """The name a model would call; a search tool is called by its type."""
    return "tool_search" if isinstance(tool, t.ToolSearchTool) else tool.name


def _tool(param: p.ToolParam, path: str) -> t.Tool:
    match param:
        case p.FunctionToolParam():
            return _function(param, path)
        case p.CustomToolParam():
            return _custom(param, path)
        case p.NamespaceToolParam():
            inner = [_inner(tool, f"{path}.tools[{i}]") for i, tool in enumerate(param.tools)]
            return t.NamespaceTool(name=param.name, description=param.description or "", tools=inner)
        case p.ToolSearchToolParam():
            return t.ToolSearchTool(
                execution=param.execution or "server",
                description=param.description or UNSET,
                parameters=param.parameters or UNSET,
            )
        case _:
            assert_never(param)


def _inner(param: p.FunctionToolParam | p.CustomToolParam, path: str) -> t.FunctionTool | t.CustomTool:
    return _function(param, path) if isinstance(param, p.FunctionToolParam) else _custom(param, path)


def _function(param: p.FunctionToolParam, path: str) -> t.FunctionTool:
    body = param.function or param
    if body.name is None:
        raise InvalidRequest("A function tool needs a `name`.", param=f"{path}.name")
    return t.FunctionTool(
        name=body.name,
        description=body.description,
        parameters=body.parameters,
        strict=body.strict,
        defer_loading=UNSET if param.defer_loading is None else param.defer_loading,
    )


def _custom(param: p.CustomToolParam, path: str) -> t.CustomTool:
    body = {"name": param.name, "description": param.description, "format": param.format, **(param.custom or {})}
    if not isinstance(body["name"], str) or not body["name"]:
        raise InvalidRequest("A custom tool needs a `name`.", param=f"{path}.name")
    return t.CustomTool(
        name=body["name"],
        description=body["description"] or UNSET,
        format=body["format"] or UNSET,
        defer_loading=UNSET if param.defer_loading is None else param.defer_loading,
    )


def normalize_choice(
    choice: str | ToolChoiceParam | None, tools: tuple[t.Tool, ...], unsupported: tuple[str, ...]
) -> t.ToolChoice:
    """The choice, checked against what is declared.

    Raises:
        InvalidRequest: it names no declared tool, forces a hosted one, or demands a call without tools.
    """
    if choice is None or choice == "auto":
        return "auto"
    if choice == "none":
        return "none"
    if isinstance(choice, str):
        if not tools:
            what = f"only {', '.join(unsupported)}, which this server cannot run" if unsupported else "none"
            raise InvalidRequest(f"tool_choice is required, but of tools there are {what}.", param="tool_choice")
        return "required"
    if choice.type == "allowed_tools":
        return _allowed(choice, tools, unsupported)
    return _named(choice, tools, "tool_choice")


def _allowed(choice: ToolChoiceParam, tools: tuple[t.Tool, ...], unsupported: tuple[str, ...]) -> t.ToolChoice:
    if choice.allowed_tools is not None:  # chat-shaped: the same object one level deeper
        choice = convert(
            {**choice.allowed_tools, "type": "allowed_tools"}, ToolChoiceParam, "tool_choice.allowed_tools"
        )
    if not choice.tools:
        raise InvalidRequest("allowed_tools needs at least one tool.", param="tool_choice.tools")
    # A hosted tool may be declared, so it may be allowed; it is not called either way.
    ours = [(i, ref) for i, ref in enumerate(choice.tools) if ref.type not in unsupported]
    refs = [_named(ref, tools, f"tool_choice.tools[{i}]") for i, ref in ours]
    if refs:
        return t.AllowedTools(tools=refs, mode=choice.mode or "auto")
    if choice.mode == "required":
        raise InvalidRequest("This server cannot run any of the tools that are allowed.", param="tool_choice.tools")
    return "none"


def _named(choice: ToolChoiceParam, tools: tuple[t.Tool, ...], path: str) -> t.ToolRef:
    name = choice.name or (choice.function.name if choice.function else None)
    if choice.type not in ("function", "custom", "namespace", "tool_search"):
        raise InvalidRequest(f"This server cannot run the hosted tool `{choice.type[:64]}`.", param=f"{path}.type")
    if choice.type != "tool_search" and not name:
        raise InvalidRequest("A named tool choice needs a `name`.", param=f"{path}.name")
    if not _declared(choice, name or "tool_search", tools):
        raise InvalidRequest(f"tool_choice names `{(name or choice.type)[:64]}`, which is not in tools.", param=path)
    return t.ToolRef(type=choice.type, name=name or "", namespace=choice.namespace or UNSET)


def _declared(choice: ToolChoiceParam, name: str, tools: tuple[t.Tool, ...]) -> bool:
    for tool in tools:
        if isinstance(tool, t.NamespaceTool):
            inside = choice.namespace in (None, tool.name) and any(inner.name == name for inner in tool.tools)
            if inside or (choice.type == "namespace" and tool.name == name):
                return True
        elif tool_name(tool) == name and choice.namespace is None and choice.type != "namespace":
            return True
    return False
