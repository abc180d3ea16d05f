"""A normalised request → the turn with everything it stands on."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from mellea_responses.errors import InvalidRequest, PreviousResponseNotFound
from mellea_responses.links import Find, Links
from mellea_responses.live import LiveCalls
from mellea_responses.normalize.items import Trigger
from mellea_responses.normalize.request import Normalized
from mellea_responses.normalize.tools import merge_tools, normalize_choice, normalize_loose_tools
from mellea_responses.store import Store
from mellea_responses.turn import Turn
from mellea_responses.wire.items import AdditionalTools, Item, ToolSearchOutput
from mellea_responses.wire.tools import Tool

Local = Callable[[str], tuple[Item, ...] | None]
"""Every item of a response that only one connection knows."""


class Past(NamedTuple):
    """What stands before a request: its items, the stored response whose chain they are, their conversation."""

    items: tuple[Item, ...] = ()
    parent: str | None = None
    conversation: str | None = None


async def complete(request: Normalized, owner: str, past: Past, store: Store, find: Find, live: LiveCalls) -> Turn:
    """Puts the past before a request and follows every link.

    Raises:
        InvalidRequest: an item points at nothing, or nothing is asked.
    """
    compact = bool(request.loose) and isinstance(request.loose[-1], Trigger)
    loose = request.loose[:-1] if compact else request.loose
    links = Links(
        find_item=find,
        find_call=lambda call_id: store.find_call(owner, call_id),
        live=lambda call_id: live.get(owner, call_id),
    )
    history, items = await links.resolve(past.items, loose)
    if not history and not items:
        raise InvalidRequest("input must not be empty.", param="input")
    tools = _with_found_tools(request, history)
    choice = normalize_choice(request.request.tool_choice, tools, request.unsupported_tools)
    return replace(
        request,
        history=history,
        parent=past.parent,
        conversation=past.conversation,
        input=items,
        tools=tools,
        tool_choice=choice,
        compact=compact,
    )


async def chain(previous: str, owner: str, store: Store, local: Local | None = None) -> Past:
    """The past of a request that continues a response.

    Raises:
        PreviousResponseNotFound: unknown, expired, deleted or another owner's: all look the same.
        InvalidRequest: the response cannot be continued.
    """
    known = local(previous) if local else None
    return Past(known) if known is not None else Past(await _chain(previous, owner, store), previous)


def not_continued(response_id: str, status: str) -> InvalidRequest:
    """The refusal to stand on a response that is not over, or did not end as an answer."""
    return InvalidRequest(
        f"The response '{response_id}' is {status} and cannot be continued.", param="previous_response_id"
    )


async def _chain(previous: str, owner: str, store: Store) -> tuple[Item, ...]:
    record = await store.get(owner, previous)
    if record is None:
        raise PreviousResponseNotFound(previous)
    if record.status not in ("completed", "incomplete"):
        raise not_continued(previous, record.status)
    history = await store.history(owner, previous)
    if history is None:
        raise PreviousResponseNotFound(previous)
    return history


def _with_found_tools(request: Normalized, history: tuple[Item, ...]) -> tuple[Tool, ...]:
    """Tools that earlier items of the chain declared or found are declared still."""
    tools = request.tools
    for item in history:
        if isinstance(item, AdditionalTools | ToolSearchOutput):
            more, _ = normalize_loose_tools(item.tools, "input")
            tools = merge_tools(more, tools)
    return tools
