"""One operation of our OpenAPI document, and the answers that operations share."""

from typing import Any

from mellea_responses import errors
from mellea_responses.errors import ApiError
from mellea_responses.http.schemas import ref

Json = dict[str, Any]

KINDS: tuple[type[ApiError], ...] = (
    errors.InvalidRequest, errors.Unauthorized, errors.Forbidden, errors.NotFound, errors.RequestTimeout,
    errors.Conflict, errors.ContentTooLarge, errors.UnsupportedMediaType, errors.Busy, errors.HeadersTooLarge, ApiError,
    errors.Draining,
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
    keyless: bool = False,
) -> Json:
    """One operation; `optional`: its body may be left out, `keyless`: nobody asks for a key."""
    made: Json = {"operationId": name, "summary": summary}
    always = {errors.Forbidden, errors.HeadersTooLarge, ApiError}
    if keyless:
        made["security"] = [{}]
    else:
        always.add(errors.Unauthorized)
    kinds: list[type[ApiError]] = sorted({*failures, *always}, key=lambda kind: kind.status)
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
