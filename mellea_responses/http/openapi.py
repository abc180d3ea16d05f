"""Our own OpenAPI document, from the msgspec types: what we read and write, not what we wish."""

from functools import cache
from typing import Any

import msgspec

from mellea_responses import __version__, errors
from mellea_responses.http.schemas import component_schemas, ref

Json = dict[str, Any]

_SERVERS = [
    {"url": "/v1", "description": "The version most clients ask for."},
    {"url": "/", "description": "The same without the version."},
]
_ROOT = [{"url": "/"}]

_COMMON = (errors.Forbidden, errors.ApiError)
"""What any route can answer."""
_ERRORS = (
    errors.InvalidRequest, errors.Forbidden, errors.NotFound, errors.ContentTooLarge, errors.UnsupportedMediaType,
    errors.Busy, errors.ApiError, errors.Draining,
)  # fmt: skip


@cache
def document() -> bytes:
    """The document as JSON; made once, when somebody first asks."""
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "mellea-responses",
                "version": __version__,
                "description": "The OpenAI Responses API over a Mellea program or a Hugging Face model.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": _SERVERS,
            "paths": _paths(),
            "components": {"schemas": _schemas(), "responses": _error_answers(), "headers": _HEADERS},
        }
    )


def _paths() -> Json:
    response_id = _in_path("response_id", "The id of a stored response.")
    model = _in_path("model", "The name of a model. Names of hubs hold a slash, which may be sent as it is.")
    return {
        "/responses": {
            "post": _operation(
                "create_response",
                "Makes a response: as JSON, or as events with `stream: true`.",
                _response_or_events(),
                errors.InvalidRequest,
                errors.NotFound,
                errors.ContentTooLarge,
                errors.UnsupportedMediaType,
                errors.Busy,
                errors.Draining,
                body=ref("CreateResponse"),
            )
        },
        "/responses/{response_id}": {
            "parameters": [response_id],
            "get": _operation(
                "get_response",
                "A stored response: the object, or with `stream=true` its events.",
                _response_or_events(),
                errors.InvalidRequest,
                errors.NotFound,
                parameters=[
                    _query("stream", {"type": "boolean", "default": False}, "Whether to answer with the events."),
                    _query(
                        "starting_after",
                        {"type": "integer", "minimum": -1, "maximum": 99_999_999_999},
                        "Only events with a higher `sequence_number`.",
                    ),
                ],
            ),
            "delete": _operation(
                "delete_response",
                "Forgets a stored response. Responses that continue it keep working.",
                _answer("It is forgotten.", ref("DeletedResponse")),
                errors.NotFound,
            ),
        },
        "/responses/{response_id}/input_items": {
            "parameters": [response_id],
            "get": _operation(
                "list_input_items",
                "The items a response was asked with, newest first unless `order=asc`.",
                _answer("One page.", ref("ItemList")),
                errors.InvalidRequest,
                errors.NotFound,
                parameters=[
                    _query("after", {"type": "string"}, "Begin behind the item with this id."),
                    _query("before", {"type": "string"}, "End before the item with this id."),
                    _query("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "Items at most."),
                    _query("order", {"type": "string", "enum": ["asc", "desc"], "default": "desc"}, "By age."),
                ],
            ),
        },
        "/models": {
            "get": _operation(
                "list_models",
                "Every name the server answers to.",
                _answer("The list.", ref("ModelList")),
            )
        },
        "/models/{model}": {
            "parameters": [model],
            "get": _operation(
                "get_model",
                "One served model.",
                _answer("The model.", ref("Model")),
                errors.NotFound,
            ),
        },
        "/health": {
            "servers": _ROOT,
            "get": _operation(
                "health",
                "Whether the server is alive.",
                _answer("It is.", _object(status={"const": "pass"})),
            ),
        },
        "/ready": {
            "servers": _ROOT,
            "get": _operation(
                "ready",
                "Whether the program is loaded and new requests are taken.",
                _answer("It is.", _object(status={"const": "ready"}, model={"type": "string"})),
                errors.Draining,
            ),
        },
        "/openapi.json": {
            "servers": _ROOT,
            "get": _operation("openapi", "This document.", _answer("An OpenAPI document.", {"type": "object"})),
        },
    }


def _operation(
    name: str,
    summary: str,
    answer: Json,
    *failures: type[errors.ApiError],
    parameters: list[Json] | None = None,
    body: Json | None = None,
) -> Json:
    kinds: list[type[errors.ApiError]] = sorted({*failures, *_COMMON}, key=lambda kind: kind.status)
    operation: Json = {
        "operationId": name,
        "summary": summary,
        "parameters": parameters or [],
        "responses": {
            "200": answer,
            **{str(kind.status): {"$ref": f"#/components/responses/{_name(kind)}"} for kind in kinds},
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation


def _answer(description: str, schema: Json, *headers: str) -> Json:
    return {
        "description": description,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in ("x-request-id", *headers)},
        "content": {"application/json": {"schema": schema}},
    }


def _response_or_events() -> Json:
    answer = _answer("The response, or its events.", ref("Response"), "x-mellea-unsupported-tools")
    # OpenAPI 3.1 cannot describe a sequence; as tools read it, and 3.2 says it, this is one event of the stream.
    answer["content"]["text/event-stream"] = {"schema": ref("ServerSentEvent")}
    return answer


def _schemas() -> Json:
    schemas = component_schemas()
    schemas["ServerSentEvent"] = {
        "title": "ServerSentEvent",
        "description": "One event of a stream. The last one is `[DONE]`, without a name. Lines that begin with a colon "
        "keep the connection open and mean nothing.",
        "type": "object",
        "properties": {
            "event": {"enum": [*schemas["Event"]["discriminator"]["mapping"]], "description": "The `type` in `data`."},
            "data": {
                "anyOf": [
                    {"const": "[DONE]"},
                    {"type": "string", "contentMediaType": "application/json", "contentSchema": ref("Event")},
                ]
            },
        },
        "required": ["data"],
    }
    return schemas


def _error_answers() -> Json:
    answers = {}
    for kind in _ERRORS:
        headers = [name for name in kind.headers if name in _HEADERS]
        description = (kind.__doc__ or "").partition("\n")[0]
        if kind is errors.ApiError:
            description = "The program, the model or the server failed."
        answers[_name(kind)] = _answer(description, ref("ErrorAnswer"), *headers)
    return answers


def _name(kind: type[errors.ApiError]) -> str:
    return "Failed" if kind is errors.ApiError else kind.__name__


def _in_path(name: str, description: str) -> Json:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _query(name: str, schema: Json, description: str) -> Json:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


_HEADERS: Json = {
    "x-request-id": {
        "description": "Ties the answer to the lines of the server's log.",
        "schema": {"type": "string"},
    },
    "x-mellea-unsupported-tools": {
        "description": "Types of the declared hosted tools that nobody here can run.",
        "schema": {"type": "string"},
    },
    "retry-after": {
        "description": "Seconds after which the same request may work.",
        "schema": {"type": "integer", "minimum": 0},
    },
}
