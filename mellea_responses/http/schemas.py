"""The component schemas of our OpenAPI document, from the msgspec types.

msgspec describes Structs; it cannot describe a union of Structs and plain objects, nor values that are decoded later.
So every Struct gets a twin made for the document alone, in which such types are references to components that are put
together here. In twins of what we write every key that is always there is required.
"""

import types
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import UnsetType

from mellea_responses.wire import chat, completion, conversations, events, items, params, request, response, tools

REF = "#/components/schemas/{name}"
Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """A reference to a component."""
    return {"$ref": REF.format(name=name)}


class _Component:
    """Base of the types that stand for a component by their name."""


def _component(name: str) -> Any:
    return type(name, (_Component,), {})


class InputItem(_Component):
    """An item in any spelling."""


class InputTool(_Component):
    """A tool in any spelling."""


class InputPart(_Component):
    """A part of a message in any spelling."""


_WRITTEN = {
    items.Item: _component("Item"),
    items.Part: _component("Part"),
    items.OutputPart: _component("OutputPart"),
    tools.Tool: _component("Tool"),
    tools.ToolChoice: _component("ToolChoice"),
}
_READ = {
    params.PartParam: _component("TypedInputPart"),
    params.ItemParam: _component("TypedInputItem"),
    params.ToolParam: _component("TypedInputTool"),
}
_OVERRIDES: dict[str, Mapping[str, Any]] = {
    "CreateResponse": {
        "input": request.Text | list[InputItem] | None,
        "tools": list[InputTool] | None,
    },
    "CreateChat": {"tools": list[InputTool] | None},
    "CreateConversation": {"items": list[InputItem] | None},
    "CreateItems": {"items": list[InputItem]},
    "MessageParam": {"content": request.Text | list[InputPart] | None},
}
"""Where values are read a second time, more loosely than their Struct says."""


class UntypedText(msgspec.Struct):
    """A text in a message's content without its `type`."""

    text: request.Text
    type: None = None


class _Twins:
    """Doc-only twins of Structs, each made once.

    Args:
        swaps: Types that become references to components.
        written: Whether the Structs are what we write; then only keys that may be left out are not required.
    """

    def __init__(self, swaps: Mapping[Any, Any], *, written: bool) -> None:
        self._swaps, self._written = swaps, written
        self._made: dict[type[msgspec.Struct], Any] = {}

    def of(self, kind: Any) -> Any:
        """The type as the document shows it."""
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind not in self._made:
                self._made[kind] = _component(kind.__name__)  # what a Struct that holds itself finds meanwhile
                self._made[kind] = self._twin(kind)
            return self._made[kind]
        for known, component in self._swaps.items():
            if kind == known:
                return component
        origin, args = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return reduce(or_, map(self.of, args))
        if origin is list:
            return list[self.of(args[0])]  # type: ignore[misc]  # a type made at run time
        return kind

    def members(self, union: Any) -> Any:
        """The twins of a union's members, for the component that the union itself is."""
        return reduce(or_, map(self.of, get_args(union)))

    def untyped(self, kind: type[msgspec.Struct], *required: str) -> Any:
        """The twin of a Struct that is recognised without its `type`."""
        fields = [self._field(kind, field, field.name in required) for field in msgspec.structs.fields(kind)]
        whole = all(field.required for field in msgspec.structs.fields(kind))  # nothing tells it apart but its keys
        name, doc = f"Untyped{kind.__name__}", {"__doc__": f"`{_tag(kind)}` without its `type`."}
        return msgspec.defstruct(
            name, [*fields, ("type", None, None)], namespace=doc, kw_only=True, forbid_unknown_fields=whole
        )

    def _twin(self, kind: type[msgspec.Struct]) -> Any:
        own = msgspec.structs.fields(kind)
        fields = [self._field(kind, field, False) for field in own]
        if fields == [(field.name, field.type) for field in own]:
            return kind  # nothing to change; both sides may share it
        config, doc = kind.__struct_config__, {"__doc__": kind.__doc__} if kind.__doc__ else {}
        return msgspec.defstruct(
            kind.__name__, fields, namespace=doc, kw_only=True, tag_field=config.tag_field, tag=config.tag
        )

    def _field(self, kind: type[msgspec.Struct], field: msgspec.structs.FieldInfo, required: bool) -> Any:
        override = _OVERRIDES.get(kind.__name__, {}).get(field.name)
        shown = override or self.of(field.type)
        required = required or (override is not None and types.NoneType not in get_args(override))
        always = self._written and UnsetType not in get_args(field.type)
        if required or always or field.required:
            return (field.name, shown)
        return (field.name, shown, field.default)


def _tag(kind: Any) -> str:
    return str(kind.__struct_config__.tag)


def component_schemas() -> Schema:
    """Every component, by name."""
    written, read = _Twins(_WRITTEN, written=True), _Twins(_READ, written=False)
    untyped = {
        "UntypedMessage": read.untyped(params.MessageParam),
        "UntypedCall": read.untyped(params.FunctionCallParam),
        "UntypedOutput": read.untyped(params.FunctionCallOutputParam, "output"),
        "UntypedReference": read.untyped(params.ItemReferenceParam),
        "UntypedTool": read.untyped(params.FunctionToolParam),
        "UntypedText": UntypedText,
    }
    kinds: dict[str, Any] = {
        "Response": written.of(response.Response),
        "DeletedResponse": written.of(response.DeletedResponse),
        "CompactedResponse": written.of(response.CompactedResponse),
        "InputTokens": written.of(response.InputTokens),
        "ItemList": written.of(response.ItemList),
        "ModelList": written.of(response.ModelList),
        "ErrorAnswer": written.of(response.ErrorAnswer),
        "ConversationBody": written.of(conversations.ConversationBody),
        "DeletedConversation": written.of(conversations.DeletedConversation),
        "ItemPage": written.of(conversations.ItemPage),
        "ChatCompletion": written.of(completion.ChatCompletion),
        "ChatChunk": written.of(completion.ChatChunk),
        "Event": written.members(events.Event),
        "TypedItem": written.members(items.TypedItem),
        "Part": written.members(items.Part),
        "OutputPart": written.members(items.OutputPart),
        "Tool": written.members(tools.Tool),
        "ToolRef": written.of(tools.ToolRef),
        "AllowedTools": written.of(tools.AllowedTools),
        "CreateResponse": read.of(request.CreateResponse),
        "CreateChat": read.of(chat.CreateChat),
        "CreateConversation": read.of(conversations.CreateConversation),
        "UpdateConversation": read.of(conversations.UpdateConversation),
        "CreateItems": read.of(conversations.CreateItems),
        "TypedInputItem": read.members(params.ItemParam),
        "TypedInputPart": read.members(params.PartParam),
        "TypedInputTool": read.members(params.ToolParam),
        **untyped,
    }
    made, schemas = msgspec.json.schema_components(kinds.values(), schema_hook=_hook, ref_template=REF)
    named = dict(zip(kinds, made, strict=True))
    schemas.update((name, schema) for name, schema in named.items() if "$ref" not in schema)
    receipts = sorted(items.RECEIPTS)
    schemas["Receipt"] = _receipt(receipts, "type", "id")
    schemas["ReceiptParam"] = _receipt(receipts, "type")
    schemas["Item"] = _with_receipts(schemas.pop("TypedItem"), receipts)
    schemas["ToolChoice"] = _any(
        {"enum": list(get_args(tools.ToolChoiceMode))}, named["ToolRef"], named["AllowedTools"]
    )
    schemas["HostedTool"] = _hosted_tool(list(schemas["TypedInputTool"]["discriminator"]["mapping"]))
    tool = _schema_of(named["UntypedTool"], schemas)
    tool["anyOf"] = [
        {"required": ["function"], "properties": {"function": {"type": "object"}}},
        {"required": ["parameters", "name"], "properties": {"name": {"type": "string"}}},
    ]
    # What stands on something need not add to it.
    schemas["CreateResponse"]["anyOf"] = [
        {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
        for name in ("input", "previous_response_id", "conversation")
    ]
    schemas["InputItem"] = _any(
        ref("TypedInputItem"), *(named[name] for name in untyped if name not in ("UntypedTool", "UntypedText")),
        ref("ReceiptParam"),
    )  # fmt: skip
    schemas["InputPart"] = _any(ref("TypedInputPart"), named["UntypedText"], {"type": "string"})
    schemas["InputTool"] = _any(ref("TypedInputTool"), named["UntypedTool"], ref("HostedTool"))
    return dict(sorted(schemas.items()))


def _hook(kind: Any) -> Schema:
    if isinstance(kind, type) and issubclass(kind, _Component):
        return ref(kind.__name__)
    raise NotImplementedError(kind)


def _any(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _schema_of(reference: Schema, schemas: Schema) -> Schema:
    schema: Schema = schemas[reference["$ref"].rpartition("/")[2]]
    return schema


def _receipt(kinds: list[str], *required: str) -> Schema:
    return {
        "title": "Receipt",
        "description": "What a server-side tool left behind, as it came.",
        "type": "object",
        "properties": {
            "type": {"enum": kinds},
            "id": {"type": "string"} if "id" in required else {"type": ["string", "null"]},
            "call_id": {"type": ["string", "null"]},
        },
        "required": list(required),
    }


def _with_receipts(typed: Schema, kinds: list[str]) -> Schema:
    mapping = {**typed["discriminator"]["mapping"], **dict.fromkeys(kinds, ref("Receipt")["$ref"])}
    return {
        "anyOf": [*typed["anyOf"], ref("Receipt")],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }


def _hosted_tool(known: list[str]) -> Schema:
    return {
        "title": "HostedTool",
        "description": "A tool of another server: accepted, and not offered to the model.",
        "type": "object",
        "properties": {"type": {"type": "string", "minLength": 1, "not": {"enum": known}}},
        "required": ["type"],
    }
