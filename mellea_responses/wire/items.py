"""Items and their parts in canonical form: complete, with ids, as they are stored, listed and emitted.

What a client may send instead is in `params`. `None` is written out where the specification requires the key;
`UNSET` keys are left out.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

Status = Literal["in_progress", "completed", "incomplete"]
Role = Literal["user", "assistant", "system", "developer"]
Phase = Literal["commentary", "final_answer"]


class Wire(msgspec.Struct, frozen=True, tag_field="type", gc=False):
    """Base of everything that is told apart by `type`."""


class UrlCitation(Wire, frozen=True, tag="url_citation"):
    """A source for a stretch of text; offsets count characters."""

    url: str
    title: str
    start_index: int
    end_index: int


class TopLogprob(msgspec.Struct, frozen=True, gc=False):
    """One alternative at a position."""

    token: str
    logprob: float
    bytes: list[int]


class Logprob(msgspec.Struct, frozen=True, gc=False):
    """One token with its natural-log probability; `bytes` are the UTF-8 bytes it stands for."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob] = []


class InputText(Wire, frozen=True, tag="input_text"):
    text: str


class OutputText(Wire, frozen=True, tag="output_text"):
    text: str
    annotations: list[UrlCitation] = []
    logprobs: list[Logprob] = []


class RefusalPart(Wire, frozen=True, tag="refusal"):
    refusal: str


class SummaryText(Wire, frozen=True, tag="summary_text"):
    text: str


class ReasoningText(Wire, frozen=True, tag="reasoning_text"):
    text: str


class InputImage(Wire, frozen=True, tag="input_image"):
    """An image by data URL, URL or file id."""

    image_url: str | None = None
    detail: Literal["low", "high", "auto", "original"] = "auto"
    file_id: str | UnsetType = UNSET


class InputFile(Wire, frozen=True, tag="input_file"):
    """A file by inline data, URL or file id."""

    filename: str | UnsetType = UNSET
    file_data: str | UnsetType = UNSET
    file_url: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET


class InputVideo(Wire, frozen=True, tag="input_video"):
    video_url: str


class AudioData(msgspec.Struct, frozen=True):
    data: str
    format: str


class InputAudio(Wire, frozen=True, tag="input_audio"):
    input_audio: AudioData


Part = (
    InputText
    | OutputText
    | RefusalPart
    | SummaryText
    | ReasoningText
    | InputImage
    | InputFile
    | InputVideo
    | InputAudio
)
OutputPart = InputText | InputImage | InputFile | InputVideo | InputAudio
"""What a tool may give back."""


class Message(Wire, frozen=True, tag="message"):
    """What somebody said."""

    id: str
    status: Status
    role: Role
    content: list[Part]
    phase: Phase | UnsetType = UNSET


class Reasoning(Wire, frozen=True, tag="reasoning"):
    """What the model thought, as summary, as raw text, sealed, or any of these together."""

    id: str
    summary: list[SummaryText] = []
    content: list[ReasoningText] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET
    status: Status | UnsetType = UNSET


class FunctionCall(Wire, frozen=True, tag="function_call"):
    """A call with JSON arguments, as the model wrote them."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: Status
    namespace: str | UnsetType = UNSET


class FunctionCallOutput(Wire, frozen=True, tag="function_call_output"):
    id: str
    call_id: str
    output: str | list[OutputPart]
    status: Status = "completed"


class CustomToolCall(Wire, frozen=True, tag="custom_tool_call"):
    """A call with free text."""

    id: str
    call_id: str
    name: str
    input: str
    status: Status
    namespace: str | UnsetType = UNSET


class CustomToolCallOutput(Wire, frozen=True, tag="custom_tool_call_output"):
    id: str
    call_id: str
    output: str | list[OutputPart]
    status: Status = "completed"


class ToolSearchCall(Wire, frozen=True, tag="tool_search_call"):
    """The model asks for more tools; `arguments` is an object, not a string."""

    id: str
    call_id: str | None
    arguments: Any
    status: Status
    execution: Literal["client", "server"] = "client"


class ToolSearchOutput(Wire, frozen=True, tag="tool_search_output"):
    """Tools found by a search; from here on they count as declared."""

    id: str
    call_id: str | None
    tools: list[dict[str, Any]]
    status: Status = "completed"
    execution: Literal["client", "server"] = "client"


class AdditionalTools(Wire, frozen=True, tag="additional_tools"):
    """Tools declared inside the input."""

    id: str
    tools: list[dict[str, Any]]
    role: str = "developer"


class Compaction(Wire, frozen=True, tag="compaction"):
    """Older turns, folded and sealed."""

    id: str
    encrypted_content: str
    created_by: str | UnsetType = UNSET


Receipt = dict[str, Any]
"""An item of a hosted tool, kept exactly as it came; see `RECEIPTS` for the known types."""

TypedItem = (
    Message
    | Reasoning
    | FunctionCall
    | FunctionCallOutput
    | CustomToolCall
    | CustomToolCallOutput
    | ToolSearchCall
    | ToolSearchOutput
    | AdditionalTools
    | Compaction
)
Item = TypedItem | Receipt

RECEIPTS = frozenset(
    {
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "computer_call",
        "computer_call_output",
        "configuration_update",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "shell_call",
        "shell_call_output",
        "web_search_call",
    }
)
"""Types of items that other servers' hosted tools leave behind."""

PREFIXES: dict[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "additional_tools": "at",
    "compaction": "cmp",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "shell_call": "sh",
    "apply_patch_call": "apc",
}
"""The prefix of an item's id by its type; other types use `item`."""


_CALLS = (FunctionCall, CustomToolCall, ToolSearchCall)
_OUTPUTS = (FunctionCallOutput, CustomToolCallOutput, ToolSearchOutput)


def item_type(item: Item) -> str:
    """The wire's name for the kind of item."""
    return str(item["type"]) if isinstance(item, dict) else str(item.__struct_config__.tag)


def item_id(item: Item) -> str | None:
    """The item's id, None for a receipt that came without one."""
    return item.get("id") if isinstance(item, dict) else item.id


def item_call_id(item: Item) -> str | None:
    """The id that ties a call to its output, None where the item is neither."""
    return item.get("call_id") if isinstance(item, dict) else getattr(item, "call_id", None)


def is_call(item: Item) -> bool:
    """Whether the item asks a client to do something and waits for an output."""
    if isinstance(item, dict):
        return str(item["type"]).endswith("_call") and "call_id" in item
    return isinstance(item, _CALLS)


def is_call_output(item: Item) -> bool:
    """Whether the item answers a call."""
    if isinstance(item, dict):
        return str(item["type"]).endswith("_call_output")
    return isinstance(item, _OUTPUTS)


_typed = msgspec.json.Decoder(TypedItem)


class _Tagged(msgspec.Struct):
    type: str


_tag = msgspec.json.Decoder(_Tagged)


def decode_item(raw: bytes | msgspec.Raw) -> Item:
    """Reads one canonical item back, as `msgspec.json.encode` wrote it.

    Raises:
        msgspec.ValidationError: it is not an item of ours.
    """
    if _tag.decode(raw).type in RECEIPTS:
        receipt: Receipt = msgspec.json.decode(raw)
        return receipt
    return _typed.decode(raw)
