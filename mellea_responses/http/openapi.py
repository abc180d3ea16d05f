"""Our own OpenAPI document, from the msgspec types: what we read and write, not what we wish."""

from functools import cache
from typing import Any

import msgspec

from mellea_responses import __version__
from mellea_responses.wire import events, items, params, request, response, tools

_REF = "#/components/schemas/{name}"


@cache
def document() -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "mellea-responses",
                "version": __version__,
                "description": "The OpenAI Responses API over a Mellea program or a Hugging Face model.",
            },
            "paths": _paths(),
            "components": {"schemas": _schemas()},
        }
    )


class InputItems(msgspec.Struct):
    """Stands for `input`, whose items the server decodes one by one."""

    input: str | list[params.ItemParam] | None = None
    tools: list[params.ToolParam] | None = None


def _schemas() -> dict[str, Any]:
    kinds = [
        request.CreateResponse, InputItems, events.Event, items.TypedItem, tools.Tool, response.DeletedResponse,
        response.ModelList, response.ErrorAnswer, response.UsageBody,
    ]  # fmt: skip
    (create, inputs, event, item, tool, *_), schemas = msgspec.json.schema_components(
        [_loose(kind) for kind in kinds], ref_template=_REF
    )
    schemas["Event"], schemas["Item"], schemas["Tool"] = event, item, tool
    body = schemas["CreateResponse"]["properties"]
    body["input"] = schemas["InputItems"]["properties"]["input"]
    body["tools"] = schemas["InputItems"]["properties"]["tools"]
    return dict(schemas)


def _loose(kind: Any) -> Any:
    return kind


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REF.format(name=name)}


def _answer(description: str, schema: dict[str, Any], media: str = "application/json") -> dict[str, Any]:
    return {"description": description, "content": {media: {"schema": schema}}}


_PATH_ID = {"name": "response_id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _operation(name: str, answer: dict[str, Any], *parameters: dict[str, Any], body: Any = None) -> dict[str, Any]:
    error = _answer("What is wrong, with a code and a path.", _ref("ErrorAnswer"))
    operation: dict[str, Any] = {
        "operationId": name, "parameters": list(parameters), "responses": {"200": answer, "4XX": error, "5XX": error},
    }  # fmt: skip
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation


def _paths() -> dict[str, Any]:
    made = _answer("The response, or with `stream: true` its events.", _ref("Response"))
    made["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    string, number = {"type": "string"}, {"type": "integer"}
    listing = [
        _query("after", string), _query("before", string), _query("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
        _query("order", {"type": "string", "enum": ["asc", "desc"]}),
    ]  # fmt: skip
    routes: dict[str, Any] = {
        "/responses": {"post": _operation("create_response", made, body=_ref("CreateResponse"))},
        "/responses/{response_id}": {
            "get": _operation(
                "get_response", made, _PATH_ID, _query("stream", {"type": "boolean"}), _query("starting_after", number)
            ),
            "delete": _operation("delete_response", _answer("Forgotten.", _ref("DeletedResponse")), _PATH_ID),
        },
        "/responses/{response_id}/input_items": {
            "get": _operation("list_input_items", _answer("One page.", _ref("ItemList")), _PATH_ID, *listing)
        },
        "/models": {"get": _operation("list_models", _answer("Every served name.", _ref("ModelList")))},
    }
    return {f"/v1{path}": operations for path, operations in routes.items()}
