"""Input items in any client's spelling → canonical items with ids."""

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

import msgspec
from msgspec import UNSET, Raw

from mellea_responses.errors import InvalidRequest
from mellea_responses.ids import new_item_id
from mellea_responses.limits import MAX_ITEMS, MAX_PARTS
from mellea_responses.wire import items as w
from mellea_responses.wire import params as p
from mellea_responses.wire.decode import decode_item_param
from mellea_responses.wire.shape import Shape, check_number

Reference = p.ItemReferenceParam
Trigger = p.CompactionTriggerParam
InputItem = w.Item | Reference | Trigger


def normalize_input(value: str | Sequence[Raw] | None, path: str = "input") -> tuple[InputItem, ...]:
    """The request's input as canonical items; references and triggers stay for `links` to resolve.

    Args:
        value: As decoded, items still raw.
        path: The field it stands in, for error messages.

    Raises:
        InvalidRequest: an item is of unknown type, or one of its fields is wrong; `param` is its path.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        return (user_text(value),)
    check_number(len(value), MAX_ITEMS, path)
    shape, parts = Shape(), 0
    items = []
    for i, raw in enumerate(value):
        place = f"{path}[{i}]"
        shape.check(raw, place)
        item = normalize_item(decode_item_param(raw, place), place)
        if isinstance(item, w.Message):
            parts += len(item.content)
        elif isinstance(item, w.FunctionCallOutput | w.CustomToolCallOutput) and not isinstance(item.output, str):
            parts += len(item.output)
        check_number(parts, MAX_PARTS, place)
        items.append(item)
    return tuple(items)


def user_text(text: str) -> w.Message:
    """A user's message of one text."""
    return w.Message(id=new_item_id("message"), status="completed", role="user", content=[w.InputText(text)])


def normalize_item(item: p.ItemParam | w.Receipt, path: str) -> InputItem:
    """One item, with an id and every field that its canonical form has."""
    match item:
        case p.MessageParam():
            return _message(item, path)
        case p.ReasoningItemParam():
            return _reasoning(item)
        case p.FunctionCallParam():
            return w.FunctionCall(
                id=_id(item.id, "function_call"),
                call_id=item.call_id,
                name=item.name,
                arguments=_arguments(item.arguments),
                status=_status(item.status),
                namespace=item.namespace or UNSET,
            )
        case p.FunctionCallOutputParam():
            return w.FunctionCallOutput(
                id=_id(item.id, "function_call_output"),
                call_id=item.call_id,
                output=_output(item.output, path),
                status=_status(item.status),
            )
        case p.CustomToolCallParam():
            return w.CustomToolCall(
                id=_id(item.id, "custom_tool_call"),
                call_id=item.call_id,
                name=item.name,
                input=item.input or "",
                status=_status(item.status),
                namespace=item.namespace or UNSET,
            )
        case p.CustomToolCallOutputParam():
            return w.CustomToolCallOutput(
                id=_id(item.id, "custom_tool_call_output"),
                call_id=item.call_id,
                output=_output(item.output, path),
                status=_status(item.status),
            )
        case p.ToolSearchCallParam():
            return w.ToolSearchCall(
                id=_id(item.id, "tool_search_call"),
                call_id=item.call_id,
                arguments=item.arguments if item.arguments is not None else {},
                status=_status(item.status),
                execution=item.execution or "client",
            )
        case p.ToolSearchOutputParam():
            return w.ToolSearchOutput(
                id=_id(item.id, "tool_search_output"),
                call_id=item.call_id,
                tools=item.tools or [],
                status=_status(item.status),
                execution=item.execution or "client",
            )
        case p.AdditionalToolsParam():
            return w.AdditionalTools(
                id=_id(item.id, "additional_tools"), tools=item.tools, role=item.role or "developer"
            )
        case p.CompactionParam():
            return w.Compaction(id=_id(item.id, "compaction"), encrypted_content=item.encrypted_content)
        case p.ItemReferenceParam() | p.CompactionTriggerParam():
            return item
        case p.InputTextParam() | p.InputImageParam() | p.InputFileParam() | p.InputAudioParam():
            return w.Message(
                id=new_item_id("message"), status="completed", role="user", content=[_part(item, "user", path)]
            )
        case dict():
            return _receipt(item, path)
        case _:
            assert_never(item)


def _receipt(item: w.Receipt, path: str) -> w.Receipt:
    """A hosted tool's item as it came, but that its ids must be ids."""
    for key in ("id", "call_id"):
        if not isinstance(item.get(key), str | None):
            raise InvalidRequest(f"`{key}` must be a string.", param=f"{path}.{key}")
    return item if item.get("id") else {**item, "id": new_item_id(str(item["type"]))}


def _id(given: str | None, kind: str) -> str:
    return given or new_item_id(kind)


def _status(given: str | None) -> w.Status:
    # Other servers write statuses of their own; what came in as history is over unless it says that it was cut.
    return "incomplete" if given in ("incomplete", "in_progress") else "completed"


def _arguments(given: str | dict[str, Any] | None) -> str:
    if isinstance(given, dict):
        return msgspec.json.encode(given).decode()
    return given or "{}"


def _message(item: p.MessageParam, path: str) -> w.Message:
    content = item.content
    if content is None or content == []:
        if item.role != "assistant":
            raise InvalidRequest('A message needs content; an empty text is "".', param=f"{path}.content")
        content = []
    parts = [_text(content, item.role)] if isinstance(content, str) else _parts(content, item.role, f"{path}.content")
    return w.Message(
        id=_id(item.id, "message"),
        status=_status(item.status),
        role=item.role,
        content=parts,
        phase=item.phase or UNSET,
    )


def _text(text: str, role: w.Role) -> w.Part:
    return w.OutputText(text) if role == "assistant" else w.InputText(text)


def _parts(parts: Iterable[p.PartParam], role: w.Role, path: str) -> list[w.Part]:
    return [
        _part(part, role, f"{path}[{i}]")
        for i, part in enumerate(parts)
        if not (isinstance(part, p.EncryptedPartParam) and not part.encrypted_content)
    ]


def _part(part: p.PartParam, role: w.Role, path: str) -> w.Part:
    match part:
        case p.InputTextParam() | p.OutputTextParam() | p.TextPartParam():
            return _text(part.text, role)
        case p.SummaryTextParam() | p.ReasoningTextParam():
            return _text(part.text, role)
        case p.EncryptedPartParam():
            return _text(part.encrypted_content or "", role)
        case p.RefusalParam():
            return w.RefusalPart(part.refusal)
        case p.InputImageParam():
            return _image(part.image_url, part.detail, part.file_id, path)
        case p.ImageUrlParam():
            return _image(part.image_url, None, None, path)
        case p.InputFileParam():
            return _file(part, path)
        case p.InputVideoParam():
            return w.InputVideo(part.video_url)
        case p.InputAudioParam():
            return w.InputAudio(part.input_audio)
        case _:
            assert_never(part)


def _image(url: str | p.UrlParam | None, detail: Any, file_id: str | None, path: str) -> w.InputImage:
    if isinstance(url, p.UrlParam):
        detail = detail or (url.detail if url.detail in ("low", "high", "auto", "original") else None)
        url = url.url
    if not url and not file_id:
        raise InvalidRequest("An image needs `image_url` (a data URL) or `file_id`.", param=path)
    return w.InputImage(image_url=url, detail=detail or "auto", file_id=file_id or UNSET)


def _file(part: p.InputFileParam, path: str) -> w.InputFile:
    if not (part.file_data or part.file_url or part.file_id):
        raise InvalidRequest("A file needs `file_data`, `file_url` or `file_id`.", param=path)
    return w.InputFile(
        filename=part.filename or UNSET,
        file_data=part.file_data or UNSET,
        file_url=part.file_url or UNSET,
        file_id=part.file_id or UNSET,
    )


def _output(value: str | list[p.PartParam] | dict[str, Any] | None, path: str) -> str | list[w.OutputPart]:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    parts = _parts(value, "user", f"{path}.output")
    return [part if not isinstance(part, w.RefusalPart) else w.InputText(part.refusal) for part in parts]  # type: ignore[misc]  # a user's parts are output parts


def _reasoning(item: p.ReasoningItemParam) -> w.Reasoning:
    content = [p.ReasoningTextParam(item.content)] if isinstance(item.content, str) else item.content or []
    return w.Reasoning(
        id=_id(item.id, "reasoning"),
        summary=[w.SummaryText(part.text) for part in item.summary or []],
        content=[w.ReasoningText(part.text) for part in content] if content else UNSET,
        encrypted_content=item.encrypted_content or UNSET,
        status=_status(item.status),
    )
