"""The events of a stream. Only published types: an unknown one breaks a client.

`Created` … `Done` name what happened; the wire's name is the tag. Field order is the order on the wire.
"""

import msgspec

from mellea_responses.wire.items import Item, Logprob, Part, UrlCitation, Wire
from mellea_responses.wire.response import ErrorBody, Response


class Created(Wire, frozen=True, tag="response.created"):
    sequence_number: int
    response: Response


class Queued(Wire, frozen=True, tag="response.queued"):
    sequence_number: int
    response: Response


class InProgress(Wire, frozen=True, tag="response.in_progress"):
    sequence_number: int
    response: Response


class Completed(Wire, frozen=True, tag="response.completed"):
    sequence_number: int
    response: Response


class Incomplete(Wire, frozen=True, tag="response.incomplete"):
    sequence_number: int
    response: Response


class Failed(Wire, frozen=True, tag="response.failed"):
    sequence_number: int
    response: Response


class ItemAdded(Wire, frozen=True, tag="response.output_item.added"):
    sequence_number: int
    output_index: int
    item: Item


class ItemDone(Wire, frozen=True, tag="response.output_item.done"):
    sequence_number: int
    output_index: int
    item: Item


class PartAdded(Wire, frozen=True, tag="response.content_part.added"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    part: Part


class PartDone(Wire, frozen=True, tag="response.content_part.done"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    part: Part


class TextDelta(Wire, frozen=True, tag="response.output_text.delta"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: list[Logprob] = []


class TextDone(Wire, frozen=True, tag="response.output_text.done"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[Logprob] = []


class AnnotationAdded(Wire, frozen=True, tag="response.output_text.annotation.added"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    annotation_index: int
    annotation: UrlCitation


class RefusalDelta(Wire, frozen=True, tag="response.refusal.delta"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    delta: str


class RefusalDone(Wire, frozen=True, tag="response.refusal.done"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    refusal: str


class ReasoningDelta(Wire, frozen=True, tag="response.reasoning_text.delta"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    delta: str


class ReasoningDone(Wire, frozen=True, tag="response.reasoning_text.done"):
    sequence_number: int
    item_id: str
    output_index: int
    content_index: int
    text: str


class SummaryPartAdded(Wire, frozen=True, tag="response.reasoning_summary_part.added"):
    sequence_number: int
    item_id: str
    output_index: int
    summary_index: int
    part: Part


class SummaryPartDone(Wire, frozen=True, tag="response.reasoning_summary_part.done"):
    sequence_number: int
    item_id: str
    output_index: int
    summary_index: int
    part: Part


class SummaryDelta(Wire, frozen=True, tag="response.reasoning_summary_text.delta"):
    sequence_number: int
    item_id: str
    output_index: int
    summary_index: int
    delta: str


class SummaryDone(Wire, frozen=True, tag="response.reasoning_summary_text.done"):
    sequence_number: int
    item_id: str
    output_index: int
    summary_index: int
    text: str


class ArgumentsDelta(Wire, frozen=True, tag="response.function_call_arguments.delta"):
    sequence_number: int
    item_id: str
    output_index: int
    delta: str


class ArgumentsDone(Wire, frozen=True, tag="response.function_call_arguments.done"):
    sequence_number: int
    item_id: str
    output_index: int
    name: str
    arguments: str


class InputDelta(Wire, frozen=True, tag="response.custom_tool_call_input.delta"):
    sequence_number: int
    item_id: str
    output_index: int
    delta: str


class InputDone(Wire, frozen=True, tag="response.custom_tool_call_input.done"):
    sequence_number: int
    item_id: str
    output_index: int
    input: str


class Error(Wire, frozen=True, tag="error"):
    """Both forms at once: some clients read the nested object, some the flat fields."""

    sequence_number: int
    error: ErrorBody
    code: str
    message: str
    param: str


Event = (
    Created
    | Queued
    | InProgress
    | Completed
    | Incomplete
    | Failed
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextDelta
    | TextDone
    | AnnotationAdded
    | RefusalDelta
    | RefusalDone
    | ReasoningDelta
    | ReasoningDone
    | SummaryPartAdded
    | SummaryPartDone
    | SummaryDelta
    | SummaryDone
    | ArgumentsDelta
    | ArgumentsDone
    | InputDelta
    | InputDone
    | Error
)
TERMINAL_EVENTS = (Completed, Incomplete, Failed)


class SocketError(Wire, frozen=True, tag="error"):
    """A failure on a WebSocket; the socket stays open."""

    status: int
    error: ErrorBody
    stream_id: str | msgspec.UnsetType = msgspec.UNSET


class SteerFailed(Wire, frozen=True, tag="response.steer.failed"):
    """The answer to `response.steer`: a running response takes no new input here."""

    error: ErrorBody
    stream_id: str | msgspec.UnsetType = msgspec.UNSET
