"""Every failure a client can see, as one tree.

ApiError                          500  server_error
├── InvalidRequest                400  invalid_request_error   invalid_request
│   ├── PreviousResponseNotFound  400                          previous_response_not_found
│   └── ContextLengthExceeded     400                          context_length_exceeded
├── Unauthorized                  401  authentication_error    invalid_api_key
├── Forbidden                     403  invalid_request_error   forbidden
├── NotFound                      404  not_found_error         not_found
│   └── ModelNotFound             404                          model_not_found
├── MethodNotAllowed              405  invalid_request_error   method_not_allowed
├── RequestTimeout                408  invalid_request_error   request_timeout
├── Conflict                      409  invalid_request_error   conflict
├── ContentTooLarge               413  invalid_request_error   content_too_large
├── UnsupportedMediaType          415  invalid_request_error   unsupported_media_type
├── UpgradeRequired               426  invalid_request_error   websocket_not_offered
├── Busy                          429  rate_limit_error        server_busy
├── HeadersTooLarge               431  invalid_request_error   headers_too_large
├── ModelFailed                   500  model_error             model_error
│   ├── ToolChoiceViolated        500                          tool_choice_violated
│   ├── InvalidToolCall           500                          invalid_tool_call
│   └── InvalidStructuredOutput   500                          invalid_structured_output
├── ProgramTimeout                500  server_error            timeout
└── Draining                      503  server_error            server_draining

They are raised deep inside and become an HTTP answer, a terminal event or an error frame at the edge, each in one
place. A message never holds anything internal: causes go to the log, under the request id.
"""

from typing import ClassVar


def well_formed(text: str) -> str:
    """The text with halves of surrogate pairs joined or replaced; a half alone has no form in UTF-8.

    A program can hold such halves: a `str` takes them, JSON escapes make them.
    """
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _word(value: object) -> str:
    """What can stand in an error. A program raises errors too, and Python lets it put anything into one."""
    return "" if value is None else well_formed(str(value))


class ApiError(Exception):
    """A failure with its place in the protocol.

    Args:
        message: What was seen and what would have worked, for the person who reads the client's log.
        param: JSON path of the offending field, such as `input[0].role`; empty when there is none.
        code: A stable code in place of the class's own.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str] = "server_error"
    headers: ClassVar[dict[str, str]] = {}

    def __init__(self, message: str, *, param: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = _word(message)
        self.param = _word(param)
        self.code = _word(code) or self.default_code


class InvalidRequest(ApiError):
    """The request is to blame and will fail again unchanged."""

    status, type, default_code = 400, "invalid_request_error", "invalid_request"


class PreviousResponseNotFound(InvalidRequest):
    """Unknown, expired, deleted and another owner's ids all look the same."""

    default_code = "previous_response_not_found"

    def __init__(self, response_id: str) -> None:
        super().__init__(
            f"Previous response with id '{response_id[:80]}' was not found. It may have expired, been deleted or been "
            "created with store: false. Send the whole conversation as input instead.",
            param="previous_response_id",
        )


class ContextLengthExceeded(InvalidRequest):
    """The prompt does not fit into the model's context window."""

    default_code = "context_length_exceeded"

    def __init__(self, message: str, *, param: str = "", code: str | None = None, tokens: int | None = None) -> None:
        super().__init__(message, param=param, code=code)
        self.tokens = tokens  # how long the prompt is, where that was counted


class Unauthorized(ApiError):
    """No key, or not one of ours."""

    status, type, default_code = 401, "authentication_error", "invalid_api_key"
    headers: ClassVar[dict[str, str]] = {"www-authenticate": "Bearer"}


class Forbidden(ApiError):
    """The request came from somewhere it may not come from."""

    status, type, default_code = 403, "invalid_request_error", "forbidden"


class NotFound(ApiError):
    """No such route or object for this owner."""

    status, type, default_code = 404, "not_found_error", "not_found"


class ModelNotFound(NotFound):
    """The server lists its model names and this is none of them."""

    default_code = "model_not_found"


class MethodNotAllowed(ApiError):
    """The route exists, the method does not."""

    status, type, default_code = 405, "invalid_request_error", "method_not_allowed"


class RequestTimeout(ApiError):
    """The request did not become whole in time."""

    status, type, default_code = 408, "invalid_request_error", "request_timeout"


class Conflict(ApiError):
    """Someone else changes the same thing right now."""

    status, type, default_code = 409, "invalid_request_error", "conflict"


class ContentTooLarge(ApiError):
    """The body, or one string in it, is over its limit."""

    status, type, default_code = 413, "invalid_request_error", "content_too_large"


class UnsupportedMediaType(ApiError):
    """The body is not JSON, or is encoded in a way we do not read."""

    status, type, default_code = 415, "invalid_request_error", "unsupported_media_type"


class UpgradeRequired(ApiError):
    """WebSockets are switched off; the status makes clients change to HTTP at once."""

    status, type, default_code = 426, "invalid_request_error", "websocket_not_offered"


class Busy(ApiError):
    """No slot is free; the same request will work later."""

    status, type, default_code = 429, "rate_limit_error", "server_busy"
    headers: ClassVar[dict[str, str]] = {"retry-after": "2"}


class HeadersTooLarge(ApiError):
    """The request has too many headers, or too large ones."""

    status, type, default_code = 431, "invalid_request_error", "headers_too_large"


class ModelFailed(ApiError):
    """The model or its output is to blame; asking again at once would cost the same prompt again."""

    type, default_code = "model_error", "model_error"


class ToolChoiceViolated(ModelFailed):
    """The answer does not keep to `tool_choice`."""

    default_code = "tool_choice_violated"


class InvalidToolCall(ModelFailed):
    """The answer calls a tool that was not declared, or with arguments that break its schema."""

    default_code = "invalid_tool_call"


class InvalidStructuredOutput(ModelFailed):
    """The answer does not keep to `text.format`."""

    default_code = "invalid_structured_output"


class ProgramTimeout(ApiError):
    """The program went silent for too long, or ran for too long."""

    default_code = "timeout"


class Draining(ApiError):
    """The server is stopping and takes no new work."""

    status, default_code = 503, "server_draining"
    headers: ClassVar[dict[str, str]] = {"retry-after": "5"}
