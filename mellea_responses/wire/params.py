"""Input items and tools as clients send them: ids, status and even `type` may be missing, null is absent.

One Struct per `type`. Everything here becomes an item of `items` or a tool of `tools` in `normalize`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mellea_responses.wire.items import AudioData, Phase, Role, Wire
from mellea_responses.wire.request import Text

CallId = Annotated[str, Meta(min_length=1, max_length=512)]
Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[a-zA-Z0-9_.:/-]+$")]
LooseStatus = str | None


class InputTextParam(Wire, frozen=True, tag="input_text"):
    text: Text


class OutputTextParam(Wire, frozen=True, tag="output_text"):
    text: Text


class TextPartParam(Wire, frozen=True, tag="text"):
    text: Text


class RefusalParam(Wire, frozen=True, tag="refusal"):
    refusal: Text


class SummaryTextParam(Wire, frozen=True, tag="summary_text"):
    text: Text


class ReasoningTextParam(Wire, frozen=True, tag="reasoning_text"):
    text: Text


class EncryptedPartParam(Wire, frozen=True, tag="encrypted_content"):
    encrypted_content: str | None = None


class UrlParam(msgspec.Struct, frozen=True):
    url: Annotated[str, Meta(max_length=33_554_432)]
    detail: str | None = None


class InputImageParam(Wire, frozen=True, tag="input_image"):
    image_url: Annotated[str, Meta(max_length=33_554_432)] | UrlParam | None = None
    detail: Literal["low", "high", "auto", "original"] | None = None
    file_id: str | None = None


class ImageUrlParam(Wire, frozen=True, tag="image_url"):
    image_url: Annotated[str, Meta(max_length=33_554_432)] | UrlParam


class InputFileParam(Wire, frozen=True, tag="input_file"):
    filename: str | None = None
    file_data: Annotated[str, Meta(max_length=67_108_864)] | None = None
    file_url: str | None = None
    file_id: str | None = None


class InputVideoParam(Wire, frozen=True, tag="input_video"):
    video_url: str


class InputAudioParam(Wire, frozen=True, tag="input_audio"):
    input_audio: AudioData


PartParam = (
    InputTextParam
    | OutputTextParam
    | TextPartParam
    | RefusalParam
    | SummaryTextParam
    | ReasoningTextParam
    | EncryptedPartParam
    | InputImageParam
    | ImageUrlParam
    | InputFileParam
    | InputVideoParam
    | InputAudioParam
)


class MessageParam(Wire, frozen=True, tag="message"):
    """One Struct for all roles: the wire tells them apart by `role`, not by `type`."""

    role: Role
    content: Text | list[PartParam] | None = None
    id: str | None = None
    status: LooseStatus = None
    phase: Phase | None = None


class AgentMessageParam(MessageParam, frozen=True, kw_only=True, tag="agent_message"):
    """What one agent of a client says to another; its text names both."""

    role: Role = "user"


class ReasoningItemParam(Wire, frozen=True, tag="reasoning"):
    id: str | None = None
    summary: list[SummaryTextParam | ReasoningTextParam | TextPartParam] | None = None
    content: Text | list[ReasoningTextParam | TextPartParam | SummaryTextParam | OutputTextParam] | None = None
    encrypted_content: str | None = None
    status: LooseStatus = None


class FunctionCallParam(Wire, frozen=True, tag="function_call"):
    call_id: CallId
    name: Annotated[str, Meta(min_length=1, max_length=512)]
    arguments: str | dict[str, Any] | None = None
    id: str | None = None
    namespace: str | None = None
    status: LooseStatus = None


class FunctionCallOutputParam(Wire, frozen=True, tag="function_call_output"):
    call_id: CallId
    output: Text | list[PartParam] | dict[str, Any] | None = None
    id: str | None = None
    status: LooseStatus = None


class CustomToolCallParam(Wire, frozen=True, tag="custom_tool_call"):
    call_id: CallId
    name: Annotated[str, Meta(min_length=1, max_length=512)]
    input: str | None = None
    id: str | None = None
    namespace: str | None = None
    status: LooseStatus = None


class CustomToolCallOutputParam(Wire, frozen=True, tag="custom_tool_call_output"):
    call_id: CallId
    output: Text | list[PartParam] | None = None
    id: str | None = None
    status: LooseStatus = None


class ToolSearchCallParam(Wire, frozen=True, tag="tool_search_call"):
    arguments: Any = None
    call_id: CallId | None = None
    execution: Literal["client", "server"] | None = None
    id: str | None = None
    status: LooseStatus = None


class ToolSearchOutputParam(Wire, frozen=True, tag="tool_search_output"):
    call_id: CallId | None = None
    tools: list[dict[str, Any]] | None = None
    execution: Literal["client", "server"] | None = None
    id: str | None = None
    status: LooseStatus = None


class AdditionalToolsParam(Wire, frozen=True, tag="additional_tools"):
    tools: list[dict[str, Any]]
    role: str | None = None
    id: str | None = None


class CompactionParam(Wire, frozen=True, tag="compaction"):
    encrypted_content: str
    id: str | None = None


class CompactionTriggerParam(Wire, frozen=True, tag="compaction_trigger"):
    """As the last item: fold what stands before it."""


class ItemReferenceParam(Wire, frozen=True, tag="item_reference"):
    id: Annotated[str, Meta(min_length=1)]


ItemParam = (
    MessageParam
    | AgentMessageParam
    | ReasoningItemParam
    | FunctionCallParam
    | FunctionCallOutputParam
    | CustomToolCallParam
    | CustomToolCallOutputParam
    | ToolSearchCallParam
    | ToolSearchOutputParam
    | AdditionalToolsParam
    | CompactionParam
    | CompactionTriggerParam
    | ItemReferenceParam
    # Some clients leave the message out around a single part.
    | InputTextParam
    | InputImageParam
    | InputFileParam
    | InputAudioParam
)


class FunctionBody(msgspec.Struct, frozen=True):
    """The inner object of a chat-shaped tool."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionToolParam(Wire, frozen=True, tag="function"):
    """Flat as in Responses, or with a nested `function` as in chat completions."""

    name: Name | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    function: FunctionBody | None = None


class CustomToolParam(Wire, frozen=True, tag="custom"):
    name: Name | None = None
    description: str | None = None
    format: dict[str, Any] | None = None
    defer_loading: bool | None = None
    custom: dict[str, Any] | None = None


class NamespaceToolParam(Wire, frozen=True, tag="namespace"):
    name: Name
    tools: list[FunctionToolParam | CustomToolParam]
    description: str | None = None


class ToolSearchToolParam(Wire, frozen=True, tag="tool_search"):
    execution: Literal["server", "client"] | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


ToolParam = FunctionToolParam | CustomToolParam | NamespaceToolParam | ToolSearchToolParam
