"""The operations of our OpenAPI document: every route with what it takes and can answer."""

from typing import Any

from mellea_responses import errors
from mellea_responses.errors import ApiError
from mellea_responses.http.schemas import ref

Json = dict[str, Any]

BODY = (errors.InvalidRequest, errors.ContentTooLarge, errors.UnsupportedMediaType)
MAKING = (*BODY, errors.NotFound, errors.Conflict, errors.Busy, errors.Draining)
READING = (errors.InvalidRequest, errors.NotFound)
ALWAYS = (errors.Unauthorized, errors.Forbidden, ApiError)
"""What any route may answer."""

KINDS: tuple[type[ApiError], ...] = (
    errors.InvalidRequest, errors.Unauthorized, errors.Forbidden, errors.NotFound, errors.Conflict,
    errors.ContentTooLarge, errors.UnsupportedMediaType, errors.Busy, ApiError, errors.Draining,
)  # fmt: skip
"""One kind of failure for each status."""

HEADERS: Json = {
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


def operation(
    name: str,
    summary: str,
    answer: Json,
    *failures: type[ApiError],
    query: dict[str, tuple[Json, str]] | None = None,
    body: Json | None = None,
    optional: bool = False,
) -> Json:
    """One operation; `optional` says that its body may be left out."""
    kinds: list[type[ApiError]] = sorted({*failures, *ALWAYS}, key=lambda kind: kind.status)
    made: Json = {"operationId": name, "summary": summary}
    if query:
        made["parameters"] = [
            {"name": key, "in": "query", "description": description, "schema": schema}
            for key, (schema, description) in query.items()
        ]
    if body is not None:
        made["requestBody"] = {"required": not optional, "content": {"application/json": {"schema": body}}}
    answers = {str(kind.status): {"$ref": f"#/components/responses/{error_name(kind)}"} for kind in kinds}
    return {**made, "responses": {"200": answer, **answers}}


def answer(description: str, schema: Json, *headers: str) -> Json:
    """An answer in JSON."""
    return {
        "description": description,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in ("x-request-id", *headers)},
        "content": {"application/json": {"schema": schema}},
    }


def error_answers() -> Json:
    """The answers that tell of failures, by their names."""
    return {
        error_name(kind): answer(
            "The program, the model or the server failed."
            if kind is ApiError
            else (kind.__doc__ or "").partition("\n")[0],
            ref("ErrorAnswer"),
            *(name for name in kind.headers if name in HEADERS),
        )
        for kind in KINDS
    }


def error_name(kind: type[ApiError]) -> str:
    """The name of a failure's answer."""
    return "Failed" if kind is ApiError else kind.__name__


def _made() -> Json:
    made = answer("The response, or its events.", ref("Response"), "x-mellea-unsupported-tools")
    # OpenAPI 3.1 cannot describe a sequence; as tools read it, and 3.2 says it, this is one event of the stream.
    made["content"]["text/event-stream"] = {"schema": ref("ServerSentEvent")}
    return made


def _in_path(name: str, description: str) -> list[Json]:
    schema = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "description": description, "schema": schema}]


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


_ROOT: Json = {"servers": [{"url": "/"}]}
"""Routes that have no version."""
_KEYLESS: Json = {"security": [{}]}

_STREAM: dict[str, tuple[Json, str]] = {
    "stream": ({"type": "boolean", "default": False}, "Whether to answer with the events."),
    "starting_after": (
        {"type": "integer", "minimum": -1, "maximum": 99_999_999_999},
        "Only events with a higher `sequence_number`.",
    ),
}
_PAGE: dict[str, tuple[Json, str]] = {
    "after": ({"type": "string"}, "Begin behind the item with this id."),
    "limit": ({"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "How many items at most."),
    "order": ({"type": "string", "enum": ["asc", "desc"], "default": "desc"}, "Oldest or newest first."),
}


def operations() -> Json:
    """Every path."""
    response = {"parameters": _in_path("response_id", "The id of a stored response.")}
    model = {"parameters": _in_path("model", "The name of a model. A slash in it may be sent as it is.")}
    return {
        "/responses": {
            "post": operation(
                "create_response",
                "Makes a response: as JSON, or as events with `stream: true`.",
                _made(),
                *MAKING,
                body=ref("CreateResponse"),
            )
        },
        "/responses/{response_id}": {
            **response,
            "get": operation(
                "get_response",
                "A stored response: the object, or with `stream=true` its events.",
                _made(),
                *READING,
                query=_STREAM,
            ),
            "delete": operation(
                "delete_response",
                "Forgets a stored response. Responses that continue it keep working.",
                answer("It is forgotten.", ref("DeletedResponse")),
                *READING,
            ),
        },
        "/responses/{response_id}/cancel": {
            **response,
            "post": operation(
                "cancel_response",
                "Ends a background response.",
                answer("The response as it ended.", ref("Response")),
                *READING,
            ),
        },
        "/responses/{response_id}/input_items": {
            **response,
            "get": operation(
                "list_input_items",
                "The items a response was asked with, newest first unless `order=asc`.",
                answer("One page.", ref("ItemList")),
                *READING,
                query={**_PAGE, "before": ({"type": "string"}, "End before the item with this id.")},
            ),
        },
        "/models": {"get": operation("list_models", "Every served name.", answer("The list.", ref("ModelList")))},
        "/models/{model}": {
            **model,
            "get": operation("get_model", "One served model.", answer("The model.", ref("Model")), errors.NotFound),
        },
        "/health": _ROOT
        | {
            "get": _KEYLESS
            | operation("health", "Whether the server is alive.", answer("It is.", _object(status={"const": "pass"})))
        },
        "/ready": _ROOT
        | {
            "get": _KEYLESS
            | operation(
                "ready",
                "Whether the program is loaded and new requests are taken.",
                answer("It is.", _object(status={"const": "ready"}, model={"type": "string"})),
                errors.Draining,
            )
        },
        "/openapi.json": _ROOT
        | {"get": operation("openapi", "This document.", answer("An OpenAPI document.", {"type": "object"}))},
    }
