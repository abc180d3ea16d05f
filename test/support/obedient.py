"""A program that does as it is asked: calls the tool it must, answers in the form it must, else says a sentence."""

import json
from collections.abc import Iterator
from typing import Any

from mellea_responses.errors import InvalidRequest
from mellea_responses.schemas import Schema
from mellea_responses.turn import Call, CallArgs, CallEnd, Refusal, Step, Text, Turn
from mellea_responses.wire.tools import AllowedTools, CustomTool, FunctionTool, NamespaceTool, Tool, ToolRef
from support.stand_in import Json

SENTENCE = "All done: the answer is 42."
DEEPEST = 12


def answer(turn: Turn) -> Iterator[Step]:
    """The shortest answer that keeps every rule of the turn."""
    tool = demanded(turn)
    if tool is not None:
        namespace, tool = tool
        yield from call(tool, namespace)
    elif turn.format.kind == "text":
        yield Text(SENTENCE)
    elif turn.format.kind == "json_object":
        yield Text("{}")
    else:
        value = fitting(turn.format.schema or {})
        yield Text(json.dumps(value[0])) if value else Refusal("No value can have that form.")


def demanded(turn: Turn) -> tuple[str | None, Tool] | None:
    """The tool that must be called, with its namespace; None when none must."""
    choice = turn.tool_choice
    refs: list[ToolRef] = []
    if isinstance(choice, AllowedTools):
        if choice.mode != "required":
            return None
        refs = list(choice.tools)
    elif isinstance(choice, ToolRef):
        refs = [choice]
    elif choice != "required":
        return None
    for tool in turn.tools:
        inner = tool.tools if isinstance(tool, NamespaceTool) else [tool]
        space = tool.name if isinstance(tool, NamespaceTool) else None
        for one in inner:
            name = getattr(one, "name", "")
            if not refs or any(ref.name in (name, space, "") for ref in refs):
                return space, one
    raise InvalidRequest("There is no tool to call.", param="tool_choice")


def call(tool: Tool, namespace: str | None) -> Iterator[Step]:
    """A call of the tool with arguments that fit."""
    if isinstance(tool, CustomTool):
        name, kind, text = tool.name, "custom", "free text"
    elif isinstance(tool, FunctionTool):
        value = arguments(tool)
        if not value:
            raise InvalidRequest("No arguments can fit this tool.", param="tools")
        name, kind, text = tool.name, "function", json.dumps(value[0])
    else:
        name, kind, text = "tool_search", "tool_search", "{}"
    yield Call("forced", name, namespace, kind=kind)  # type: ignore[arg-type]  # one of the three above
    yield CallArgs("forced", text)
    yield CallEnd("forced")


def arguments(tool: FunctionTool) -> list[Any]:
    """Arguments that fit the tool, in a list; an empty list when none were found. A loose tool takes any object."""
    schema = {"type": "object", **(tool.parameters or {})}
    if tool.strict:
        return [value for value in fitting(schema) if isinstance(value, dict)]
    value = sample(schema, schema)
    return [value if isinstance(value, dict) else {}]


def fitting(schema: Json) -> list[Any]:
    """A value that fits the schema, in a list; an empty list when none was found."""
    judge = Schema(schema, "schema")
    for value in (sample(schema, schema), {}, [], "", 0, None, True):
        if judge.complaint(value) is None:
            return [value]
    return []


def sample(schema: Any, root: Json, depth: int = 0) -> Any:
    """A value for the usual schemas; for the unusual a guess."""
    if not isinstance(schema, dict) or depth > DEEPEST:
        return None
    if isinstance(schema.get("$ref"), str):
        return sample(_follow(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return sample(schema[key][0], root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else None)
    return _of_kind(kind[0] if isinstance(kind, list) and kind else kind, schema, root, depth)


def _of_kind(kind: Any, schema: Json, root: Json, depth: int) -> Any:
    match kind:
        case "object":
            properties = schema.get("properties")
            properties = properties if isinstance(properties, dict) else {}
            return {name: sample(one, root, depth + 1) for name, one in properties.items()}
        case "array":
            least = schema.get("minItems", 0)
            return [sample(schema.get("items"), root, depth + 1)] * min(least if isinstance(least, int) else 0, 8)
        case "string":
            least = schema.get("minLength", 0)
            return "x" * min(least if isinstance(least, int) else 0, 1000)
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return True
        case _:
            return None


def _follow(reference: str, root: Json) -> Any:
    node: Any = root
    for key in reference.removeprefix("#").strip("/").split("/"):
        if key and isinstance(node, dict):
            node = node.get(key)
    return node
