"""The answer of chat completions, whole and in chunks. Keys that OpenAI always writes are always written."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from mellea_responses.wire.items import Logprob, Wire


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int = 0
    cache_write_tokens: int = 0


class CompletionDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int = 0


class ChatUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class CalledCustom(msgspec.Struct, frozen=True):
    name: str
    input: str


class FunctionCallBody(Wire, frozen=True, tag="function", kw_only=True):
    """`index` only in chunks."""

    index: int | UnsetType = UNSET
    id: str
    function: CalledFunction


class CustomCallBody(Wire, frozen=True, tag="custom", kw_only=True):
    index: int | UnsetType = UNSET
    id: str
    custom: CalledCustom


CallBody = FunctionCallBody | CustomCallBody


class Citation(msgspec.Struct, frozen=True):
    url: str
    title: str
    start_index: int
    end_index: int


class CitationNote(Wire, frozen=True, tag="url_citation"):
    """Offsets count characters of `content`."""

    url_citation: Citation


class ChoiceLogprobs(msgspec.Struct, frozen=True):
    content: list[Logprob]
    refusal: None = None


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """`content` is null where calls or a refusal stand in its place."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: str | None = None
    annotations: list[CitationNote] = []
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallBody] | UnsetType = UNSET


FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    index: Literal[0] = 0
    message: AnswerMessage
    logprobs: ChoiceLogprobs | None = None
    finish_reason: FinishReason


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: ChatUsage | None


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What is new of the message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    refusal: str | UnsetType = UNSET
    annotations: list[CitationNote] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallBody] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: Literal[0] = 0
    delta: Delta
    logprobs: ChoiceLogprobs | None = None
    finish_reason: FinishReason | None = None


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """`usage` is there only where the client asked for it, and null in all chunks but the last."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: ChatUsage | UnsetType | None = UNSET
