"""The body of `POST /v1/responses`, decoded strictly: a wrong type is an error with a path, an unknown key is ignored.

`input` and `tools` stay raw here: `params` decodes them one by one, since their types are open.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw

from mellea_responses.limits import MAX_NAMES, MAX_SHORT, MAX_TOOLS

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Summary = Literal["concise", "detailed", "auto"]
Text = Annotated[str, Meta(max_length=10_485_760)]
"""The specification's limit for a text; it counts characters."""
Short = Annotated[str, Meta(max_length=MAX_SHORT)]
Names = Annotated[list[str], Meta(max_length=MAX_NAMES)]


class ReasoningParam(msgspec.Struct, frozen=True):
    effort: Effort | None = None
    summary: Summary | None = None
    generate_summary: Summary | None = None


class FormatParam(msgspec.Struct, frozen=True):
    """`text`, `json_object` or `json_schema`, the last flat or with a nested chat-style `json_schema`."""

    type: Literal["text", "json_object", "json_schema", "grammar"]
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    json_schema: dict[str, Any] | None = None


class TextParam(msgspec.Struct, frozen=True):
    format: FormatParam | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    include_obfuscation: bool | None = None


class ConversationParam(msgspec.Struct, frozen=True):
    id: Annotated[str, Meta(min_length=1)]


class ContextManagement(msgspec.Struct, frozen=True):
    type: str
    compact_threshold: Count | None = None


class FunctionName(msgspec.Struct, frozen=True):
    name: str


class ToolChoiceParam(msgspec.Struct, frozen=True):
    """An object in `tool_choice`: a named tool, flat or chat-shaped, a hosted tool, or a set of allowed ones."""

    type: str
    name: str | None = None
    namespace: str | None = None
    function: FunctionName | None = None
    mode: Literal["none", "auto", "required"] | None = None
    tools: Annotated[list["ToolChoiceParam"], Meta(max_length=MAX_TOOLS)] | None = None
    allowed_tools: dict[str, Any] | None = None


class CreateResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may ask. `None` is the same as absent, everywhere."""

    model: Short | None = None
    input: Text | list[Raw] | None = None
    instructions: Text | None = None
    previous_response_id: str | None = None  # however long: an id that never was is not found
    conversation: str | ConversationParam | None = None
    include: Names | None = None
    tools: list[Raw] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoiceParam | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Count | None = None
    metadata: Annotated[dict[str, Annotated[str, Meta(max_length=512)]], Meta(max_length=16)] | None = None
    text: TextParam | None = None
    format: FormatParam | None = None
    response_format: FormatParam | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    max_output_tokens: Count | None = None
    reasoning: ReasoningParam | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    background: bool | None = None
    store: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    service_tier: Short | None = None
    safety_identifier: Short | None = None
    prompt_cache_key: Short | None = None
    user: Short | None = None
    context_management: Annotated[list[ContextManagement], Meta(max_length=MAX_NAMES)] | None = None
    # Ours, beyond OpenAI's: listed in docs/options.md.
    requirements: Names | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=64)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    # WebSocket only.
    generate: bool | None = None
    stream_id: Short | None = None
