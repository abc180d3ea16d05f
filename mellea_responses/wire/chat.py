"""The body of `POST /v1/chat/completions`, decoded as strictly as that of `/v1/responses`.

Parts, tools and most options are those of Responses, and so are their Structs.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw

from mellea_responses.wire import params as p
from mellea_responses.wire.items import Wire
from mellea_responses.wire.request import CreateResponse, Effort, FormatParam, FunctionName, Short, Text


class FileBody(msgspec.Struct, frozen=True):
    filename: str | None = None
    file_data: Annotated[str, Meta(max_length=67_108_864)] | None = None
    file_id: str | None = None


class FilePart(Wire, frozen=True, tag="file"):
    file: FileBody


class VideoPart(Wire, frozen=True, tag="video_url"):
    video_url: p.UrlParam


ChatPart = (
    p.TextPartParam
    | p.InputTextParam
    | p.OutputTextParam
    | p.RefusalParam
    | p.ImageUrlParam
    | p.InputImageParam
    | p.InputAudioParam
    | FilePart
    | VideoPart
)
Content = Text | list[ChatPart]


class ReplayedFunction(msgspec.Struct, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=512)]
    arguments: str | dict[str, Any] | None = None


class ReplayedCustom(msgspec.Struct, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=512)]
    input: str | None = None


class ReplayedCall(msgspec.Struct, frozen=True):
    """A call of an earlier answer: of a function, or of a custom tool."""

    id: p.CallId
    function: ReplayedFunction | None = None
    custom: ReplayedCustom | None = None


class _Spoken(msgspec.Struct, frozen=True, tag_field="role", kw_only=True):
    content: Content | None = None


class SystemMessage(_Spoken, frozen=True, tag="system"):
    """What the program is told."""


class DeveloperMessage(_Spoken, frozen=True, tag="developer"):
    """The newer name for a system message."""


class UserMessage(_Spoken, frozen=True, tag="user"):
    """What the person said."""


class AssistantMessage(_Spoken, frozen=True, tag="assistant", kw_only=True):
    """An earlier answer, as it was given."""

    reasoning_content: Text | None = None
    refusal: Text | None = None
    tool_calls: list[ReplayedCall] | None = None
    function_call: ReplayedFunction | None = None


class ToolMessage(_Spoken, frozen=True, tag="tool", kw_only=True):
    """What a call gave."""

    tool_call_id: p.CallId


class FunctionMessage(_Spoken, frozen=True, tag="function", kw_only=True):
    """The old form of a tool's message: it names the function, not the call."""

    name: Annotated[str, Meta(min_length=1, max_length=512)]


ChatMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage


class ChatStreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class AllowedBody(msgspec.Struct, frozen=True):
    tools: list["ChatChoice"]
    mode: Literal["none", "auto", "required"] | None = None


class ChatChoice(msgspec.Struct, frozen=True):
    """An object in `tool_choice`: one function, one custom tool, or a set of allowed ones; nested or flat."""

    type: str
    name: str | None = None
    function: FunctionName | None = None
    custom: FunctionName | None = None
    allowed_tools: AllowedBody | None = None
    tools: list["ChatChoice"] | None = None
    mode: Literal["none", "auto", "required"] | None = None


class CreateChat(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may ask. `None` is the same as absent, everywhere; an unknown key is ignored."""

    messages: list[ChatMessage]
    model: Short | None = None
    n: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    reasoning_effort: Effort | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    response_format: FormatParam | None = None
    tools: list[Raw] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChatChoice | None = None
    functions: list[Any] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    requirements: list[str | None] | None = None
    store: bool | None = None
    # As in `CreateResponse`, field by field.
    parallel_tool_calls: bool | None = None
    metadata: Annotated[dict[str, Annotated[str, Meta(max_length=512)]], Meta(max_length=16)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=64)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    service_tier: Short | None = None
    safety_identifier: Short | None = None
    prompt_cache_key: Short | None = None
    user: Short | None = None


class FromChat(CreateResponse, frozen=True, kw_only=True):
    """A request that came as chat; `body` is what the client sent, for programs that ask for it."""

    body: bytes = b""
