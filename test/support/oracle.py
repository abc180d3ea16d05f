"""Two outside authorities on the shape of what is sent: the specification's types and the official SDK's types.

Everything is judged strictly by `openresponses-types`, generated from the specification. What that does not define, by
name in `BEYOND`, is judged by the SDK's types, strictly too: its own lenient constructor takes anything, and its unions
take a wrong member rather than none, so the decoded class must be the one for the `type`. What neither knows fails, and
so does any key that the type does not have, unless `EXTRA_KEYS` names it with its reason.
"""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Literal, get_args, get_origin

import openresponses_types as spec
from openai.types import responses as sdk
from openai.types.responses.response_item import ResponseItem
from openai.types.responses.tool import Tool
from pydantic import BaseModel, RootModel, TypeAdapter, ValidationError

Json = dict[str, Any]

BEYOND_EVENTS = frozenset(
    {
        # The specification's own names for these break the SDKs.
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
    }
)
BEYOND_ITEMS = frozenset(
    {
        "custom_tool_call",
        "custom_tool_call_output",
        "tool_search_call",
        "tool_search_output",
        "additional_tools",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "computer_call",
        "image_generation_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "mcp_call",
        "mcp_list_tools",
    }
)
BEYOND_TOOLS = frozenset({"custom", "namespace", "tool_search"})
BEYOND_CHOICES = frozenset({"custom", "namespace", "tool_search"})

EXTRA_KEYS: dict[tuple[str, str], str] = {
    ("error", "code"): "clients read the flat form of an error, too",
    ("error", "message"): "clients read the flat form of an error, too",
    ("error", "param"): "clients read the flat form of an error, too",
    ("reasoning", "status"): "the SDK has it, and an item without a status breaks a client",
    ("custom_tool_call", "status"): "an item without a status breaks a client",
    ("custom_tool_call_output", "status"): "an item without a status breaks a client",
    ("function_call", "namespace"): "calls of namespace tools carry it",
    ("function", "defer_loading"): "tools found by tool search carry it",
    ("function", "namespace"): "a choice may name a tool in a namespace",
    ("response.function_call_arguments.done", "name"): "older SDKs require it",
    ("input_tokens_details", "cache_write_tokens"): "the SDK has it",
    ("response", "conversation"): "a client needs it echoed",
}

EVENTS: dict[str, type[BaseModel]] = {
    "response.created": spec.ResponseCreatedStreamingEvent,
    "response.queued": spec.ResponseQueuedStreamingEvent,
    "response.in_progress": spec.ResponseInProgressStreamingEvent,
    "response.completed": spec.ResponseCompletedStreamingEvent,
    "response.failed": spec.ResponseFailedStreamingEvent,
    "response.incomplete": spec.ResponseIncompleteStreamingEvent,
    "response.output_item.added": spec.ResponseOutputItemAddedStreamingEvent,
    "response.output_item.done": spec.ResponseOutputItemDoneStreamingEvent,
    "response.content_part.added": spec.ResponseContentPartAddedStreamingEvent,
    "response.content_part.done": spec.ResponseContentPartDoneStreamingEvent,
    "response.output_text.delta": spec.ResponseOutputTextDeltaStreamingEvent,
    "response.output_text.done": spec.ResponseOutputTextDoneStreamingEvent,
    "response.output_text.annotation.added": spec.ResponseOutputTextAnnotationAddedStreamingEvent,
    "response.refusal.delta": spec.ResponseRefusalDeltaStreamingEvent,
    "response.refusal.done": spec.ResponseRefusalDoneStreamingEvent,
    "response.reasoning_summary_part.added": spec.ResponseReasoningSummaryPartAddedStreamingEvent,
    "response.reasoning_summary_part.done": spec.ResponseReasoningSummaryPartDoneStreamingEvent,
    "response.reasoning_summary_text.delta": spec.ResponseReasoningSummaryDeltaStreamingEvent,
    "response.reasoning_summary_text.done": spec.ResponseReasoningSummaryDoneStreamingEvent,
    "response.function_call_arguments.delta": spec.ResponseFunctionCallArgumentsDeltaStreamingEvent,
    "response.function_call_arguments.done": spec.ResponseFunctionCallArgumentsDoneStreamingEvent,
    "error": spec.ErrorStreamingEvent,
}
ITEMS: dict[str, type[BaseModel]] = {
    "message": spec.Message,
    "function_call": spec.FunctionCall,
    "function_call_output": spec.FunctionCallOutput,
    "reasoning": spec.ReasoningBody,
    "compaction": spec.CompactionBody,
}


class OracleError(AssertionError):
    """What was sent is not what the specification or the SDK knows."""


def check_event(event: Json) -> None:
    """One event with everything in it."""
    kind = event["type"]
    if kind in BEYOND_EVENTS:
        _judge_by_sdk(sdk.ResponseStreamEvent, event)
    elif kind in EVENTS:
        _judge(EVENTS[kind], _without_beyond(event))
    else:
        raise OracleError(f"{kind} is no event of the specification and no named exception")


def check_events(events: Iterable[Json]) -> None:
    for event in events:
        check_event(event)


def check_response(response: Json) -> None:
    """A response object on its own."""
    _judge(spec.ResponseResource, _lift_response(response))


def check_item(item: Json) -> None:
    """An item, as in a list of input items or in an output."""
    kind = item["type"]
    if kind in BEYOND_ITEMS:
        _judge_by_sdk(ResponseItem, item)
    elif kind in ITEMS:
        _judge(ITEMS[kind], item)
    else:
        raise OracleError(f"{kind} is no item of the specification and no named exception")


def check_item_page(page: Json) -> None:
    """The answer to a request for input items."""
    sdk.ResponseItemList.model_validate_json(json.dumps({**page, "data": []}), strict=True)
    assert page.keys() == {"object", "data", "first_id", "last_id", "has_more"}
    for item in page["data"]:
        check_item(item)


def check_error(body: Json) -> None:
    """The body of every failure: four strings, nothing else."""
    assert body.keys() == {"error"}, f"keys {sorted(body)}"
    assert body["error"].keys() == {"message", "type", "param", "code"}, f"keys {sorted(body['error'])}"
    wrong = {name: value for name, value in body["error"].items() if not isinstance(value, str)}
    assert not wrong, f"not strings: {wrong}"
    assert body["error"]["message"], "no message"
    assert body["error"]["code"], "no code"
    assert body["error"]["type"] in ERROR_TYPES, body["error"]["type"]


ERROR_TYPES = frozenset(
    {
        "invalid_request_error",
        "not_found_error",
        "authentication_error",
        "rate_limit_error",
        "server_error",
        "model_error",
    }
)


# ---------------------------------------------------------------- what lies beyond the specification


def _without_beyond(event: Json) -> Json:
    """The event with its exceptions judged by the SDK and taken out."""
    item = event.get("item")
    if isinstance(item, dict):
        if item["type"] in BEYOND_ITEMS:
            _judge_by_sdk(sdk.ResponseOutputItem, item)
            return {**event, "item": None}
        check_item(item)
    part = event.get("part")
    if isinstance(part, dict) and part["type"] not in _PARTS:
        raise OracleError(f"{part['type']} is no part of the specification")
    if isinstance(event.get("response"), dict):
        return {**event, "response": _lift_response(event["response"])}
    return event


_PARTS = frozenset({"output_text", "refusal", "reasoning_text", "summary_text"})


def _lift_response(response: Json) -> Json:
    for item in response["output"]:
        if item["type"] in BEYOND_ITEMS:
            _judge_by_sdk(sdk.ResponseOutputItem, item)
        else:
            check_item(item)
    for tool in response["tools"]:
        if tool["type"] in BEYOND_TOOLS:
            _judge_by_sdk(Tool, tool)
    choice, chosen = response["tool_choice"], _choice_types(response["tool_choice"])
    if chosen & BEYOND_CHOICES:
        _judge_choice(choice)
        choice = "auto"
    return {
        **response,
        "output": [item for item in response["output"] if item["type"] not in BEYOND_ITEMS],
        "tools": [tool for tool in response["tools"] if tool["type"] not in BEYOND_TOOLS],
        "tool_choice": choice,
        "text": _lift_text(response["text"]),
    }


def _lift_text(text: Json) -> Json:
    """The specification's `schema` can only be null, an omission of its generator; the SDK knows better."""
    if text["format"]["type"] != "json_schema":
        return text
    _judge_by_sdk(sdk.ResponseFormatTextConfig, text["format"])
    return {**text, "format": {**text["format"], "schema": None}}


def _choice_types(choice: Any) -> set[str]:
    if not isinstance(choice, dict):
        return set()
    return {choice["type"], *(tool["type"] for tool in choice.get("tools", []))}


def _judge_choice(choice: Json) -> None:
    known = [sdk.ToolChoiceFunction, sdk.ToolChoiceCustom, sdk.ToolChoiceAllowed, sdk.ToolChoiceTypes]
    for model in known:
        if choice["type"] in _literals(model):
            _judge(model, choice)
            return
    raise OracleError(f"no type knows the choice {choice}")


# ---------------------------------------------------------------- strictness


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _judge(model: type[BaseModel], value: Json) -> None:
    try:
        decoded = model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as exc:
        raise OracleError(f"{model.__name__} refuses {json.dumps(value)[:2000]}:\n{exc}") from None
    _no_unknown_keys(decoded, value, model.__name__)


def _judge_by_sdk(kind: Any, value: Json) -> None:
    try:
        decoded = _adapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as exc:
        raise OracleError(f"the SDK refuses {json.dumps(value)[:2000]}:\n{str(exc)[:3000]}") from None
    if value["type"] not in _literals(type(decoded)):
        raise OracleError(f"the SDK takes {value['type']} for a {type(decoded).__name__}")
    _no_unknown_keys(decoded, value, type(decoded).__name__)


def _literals(model: type[BaseModel]) -> tuple[str, ...]:
    annotation = model.model_fields["type"].annotation
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(getattr(member, "value", member) for member in annotation or ())  # type: ignore[union-attr]  # an enum


def _no_unknown_keys(decoded: Any, value: Any, name: str) -> None:
    unknown = [key for owner, key in _unknown(decoded, value, name) if (owner, key) not in EXTRA_KEYS]
    if unknown:
        raise OracleError(f"{name} has no {', '.join(sorted(set(unknown)))}: {json.dumps(value)[:1000]}")


def _unknown(decoded: Any, value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Keys that the decoded type does not have, with the `type` (or the field's name) of their object."""
    if isinstance(decoded, RootModel):
        decoded = decoded.root
    if isinstance(decoded, BaseModel) and isinstance(value, dict):
        owner = str(value.get("type") or value.get("object") or name)
        fields = {field.alias or key: key for key, field in type(decoded).model_fields.items()}
        for key, inner in value.items():
            if key not in fields:
                yield owner, key
            else:
                yield from _unknown(getattr(decoded, fields[key]), inner, key)
    elif isinstance(decoded, list) and isinstance(value, list):
        for one, inner in zip(decoded, value, strict=True):
            yield from _unknown(one, inner, name)
