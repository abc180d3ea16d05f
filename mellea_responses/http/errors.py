"""Errors as HTTP: one shape on every route, whoever raised."""

import logging
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from mellea_responses import errors
from mellea_responses.errors import ApiError
from mellea_responses.ids import new_id
from mellea_responses.wire.response import ErrorAnswer, ErrorBody

logger = logging.getLogger("mellea_responses.http")
_encode = msgspec.json.Encoder().encode
REQUEST_ID = "x-request-id"


def request_id(request: Request[Any, Any, Any]) -> str:
    """The id that ties an answer to the log's lines; one per request."""
    state = request.scope["state"]
    if REQUEST_ID not in state:
        state[REQUEST_ID] = new_id("req")
    return str(state[REQUEST_ID])


def error_body(error: ApiError) -> ErrorBody:
    """The error object, as bodies and events carry it."""
    return ErrorBody(message=error.message, type=error.type, param=error.param, code=error.code)


def encode_error(error: ApiError) -> bytes:
    """The body of an error."""
    return _encode(ErrorAnswer(error_body(error)))


def error_headers(error: ApiError) -> dict[str, str]:
    """An error's headers. What would fail again says so to clients that retry."""
    return {**error.headers, "x-should-retry": "false"} if error.status == 500 else dict(error.headers)


def error_answer(
    error: ApiError, request: Request[Any, Any, Any], more: dict[str, str] | None = None
) -> Response[bytes]:
    """An error as an answer."""
    headers = {**error_headers(error), **(more or {}), REQUEST_ID: request_id(request)}
    request.app.state.service.refused(error, request.scope["state"].get("owner", ""), request_id(request))
    return Response(encode_error(error), status_code=error.status, headers=headers, media_type="application/json")


SERVER_FAILED = "The server failed. Its log has the cause."


def own_failure(exc: Exception, request_id: str) -> ApiError:
    """A failure as the client is told it. The log has its cause, under the id that the client gets."""
    error = exc if isinstance(exc, ApiError) else ApiError(SERVER_FAILED)
    cause = exc.__cause__ if isinstance(exc, ApiError) else exc
    if error.status >= 500 and cause is not None:
        logger.error("request %s failed", request_id, exc_info=cause)
    return error


def handle(request: Request[Any, Any, Any], exc: Exception) -> Response[bytes]:
    """The one handler: ours as they are, the framework's in our shape, anything else without a word of its own."""
    if isinstance(exc, HTTPException):
        allow = {k: v for k, v in (exc.headers or {}).items() if k.lower() == "allow"}
        return error_answer(_translate(exc, request), request, allow)
    return error_answer(own_failure(exc, request_id(request)), request)


def _translate(exc: HTTPException, request: Request[Any, Any, Any]) -> ApiError:
    path = request.url.path[:200]
    match exc.status_code:
        case 404:
            return errors.NotFound(f"There is no route {request.method} {path}.", code="route_not_found")
        case 405:
            return errors.MethodNotAllowed(f"{request.method} is not allowed on {path}.")
        case 413:
            return errors.ContentTooLarge("The body is larger than this server takes.")
        case 415:
            return errors.UnsupportedMediaType("Send application/json.")
        case status if status < 500:
            extra = exc.extra if isinstance(exc.extra, list) else []
            key = next((str(one["key"]) for one in extra if isinstance(one, dict) and "key" in one), "")
            return errors.InvalidRequest("The request is not valid.", param=key)
        case _:
            return ApiError(SERVER_FAILED)
