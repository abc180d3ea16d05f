"""The response object and the small objects around it. Every key the specification requires is always written."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from mellea_responses.wire.items import Item
from mellea_responses.wire.request import Effort, Summary
from mellea_responses.wire.tools import Tool, ToolChoice

ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
TERMINAL: frozenset[ResponseStatus] = frozenset({"completed", "incomplete", "failed", "cancelled"})


class IncompleteDetails(msgspec.Struct, frozen=True):
    reason: str


class ResponseError(msgspec.Struct, frozen=True):
    code: str
    message: str


class InputTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int = 0


class UsageBody(msgspec.Struct, frozen=True):
    """Token counts; `total_tokens` is input plus output."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ReasoningBody(msgspec.Struct, frozen=True):
    effort: Effort | None = None
    summary: Summary | None = None


class FormatBody(msgspec.Struct, frozen=True):
    """`text.format` as answered; `schema` and its neighbours only for `json_schema`."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    schema: dict[str, Any] | UnsetType = UNSET
    strict: bool | UnsetType = UNSET


class TextBody(msgspec.Struct, frozen=True):
    format: FormatBody = FormatBody()
    verbosity: Literal["low", "medium", "high"] = "medium"


class ConversationRef(msgspec.Struct, frozen=True):
    id: str


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The response object of the specification, with OpenAI's `conversation`."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus
    background: bool = False
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    model: str
    output: list[Item] = []
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    conversation: ConversationRef | UnsetType = UNSET
    prompt_cache_key: str | None = None
    reasoning: ReasoningBody | None = None
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool = True
    temperature: float = 1.0
    text: TextBody = TextBody()
    tool_choice: ToolChoice = "auto"
    tools: list[Tool] = []
    top_logprobs: int = 0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    truncation: Literal["auto", "disabled"] = "disabled"
    usage: UsageBody | None = None
    metadata: dict[str, str] = {}


class DeletedResponse(msgspec.Struct, frozen=True):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class CompactedResponse(msgspec.Struct, frozen=True):
    id: str
    output: list[Item]
    created_at: int
    usage: UsageBody | None
    object: Literal["response.compaction"] = "response.compaction"


class InputTokens(msgspec.Struct, frozen=True):
    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class ItemList(msgspec.Struct, frozen=True):
    """One page of items; `first_id` and `last_id` are empty strings for an empty page."""

    data: list[Item]
    first_id: str
    last_id: str
    has_more: bool
    object: Literal["list"] = "list"


class Model(msgspec.Struct, frozen=True):
    id: str
    created: int
    object: Literal["model"] = "model"
    owned_by: str = "mellea-responses"


class ModelList(msgspec.Struct, frozen=True):
    data: list[Model]
    object: Literal["list"] = "list"


class ErrorBody(msgspec.Struct, frozen=True):
    """All four are strings: one client hides the message when any is null."""

    message: str
    type: str
    param: str
    code: str


class ErrorAnswer(msgspec.Struct, frozen=True):
    error: ErrorBody
