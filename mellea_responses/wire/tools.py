"""Tools in canonical form, and the choice among them."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from mellea_responses.wire.items import Wire


class FunctionTool(Wire, frozen=True, tag="function"):
    """A tool with JSON arguments. `parameters` None means that it takes none."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | UnsetType = UNSET


class CustomTool(Wire, frozen=True, tag="custom"):
    """A tool that takes free text, perhaps by a lark or regex grammar."""

    name: str
    description: str | UnsetType = UNSET
    format: dict[str, Any] | UnsetType = UNSET
    defer_loading: bool | UnsetType = UNSET


class NamespaceTool(Wire, frozen=True, tag="namespace"):
    """Tools of one origin; calls carry `name` and `namespace`."""

    name: str
    description: str
    tools: list[FunctionTool | CustomTool]


class ToolSearchTool(Wire, frozen=True, tag="tool_search"):
    """Lets the model ask for more tools."""

    execution: Literal["server", "client"] = "server"
    description: str | UnsetType = UNSET
    parameters: dict[str, Any] | UnsetType = UNSET


Tool = FunctionTool | CustomTool | NamespaceTool | ToolSearchTool


class ToolRef(msgspec.Struct, frozen=True):
    """One tool named in a choice. `namespace` only where the client said it."""

    type: str
    name: str = ""
    namespace: str | UnsetType = UNSET


class AllowedTools(Wire, frozen=True, tag="allowed_tools"):
    """Only these tools may be called; `mode` says whether one must be."""

    tools: list[ToolRef]
    mode: Literal["none", "auto", "required"] = "auto"


ToolChoiceMode = Literal["none", "auto", "required"]
ToolChoice = ToolChoiceMode | ToolRef | AllowedTools
