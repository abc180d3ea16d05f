"""A normalised request → the turn with everything it stands on."""

from collections.abc import Callable

from msgspec.structs import replace

from mellea_responses.errors import InvalidRequest, PreviousResponseNotFound
from mellea_responses.links import Links
from mellea_responses.live import LiveCalls
from mellea_responses.normalize.request import Normalized
from mellea_responses.normalize.tools import merge_tools, normalize_loose_tools
from mellea_responses.store import Store
from mellea_responses.turn import Turn
from mellea_responses.wire.items import AdditionalTools, Item, ToolSearchOutput
from mellea_responses.wire.tools import Tool


Local = Callable[[str], tuple[Item, ...] | None]
"""Every item of a response that only one connection knows."""


async def complete(request: Normalized, owner: str, store: Store, live: LiveCalls, local: Local | None = None) -> Turn:
    """Loads the chain and follows every link.

    Raises:
        PreviousResponseNotFound: unknown, expired, deleted or another owner's: all look the same.
        InvalidRequest: the response cannot be continued, or an item points at nothing.
    """
    previous = request.request.previous_response_id
    history: tuple[Item, ...] = ()
    if previous is not None:
        known = local(previous) if local else None
        history = known if known is not None else await _chain(previous, owner, store)
    links = Links(
        find_item=lambda item_id: store.find_item(owner, item_id),
        find_call=lambda call_id: store.find_call(owner, call_id),
        live=lambda call_id: live.get(owner, call_id),
    )
    history, items = await links.resolve(history, request.loose)
    if not history and not items:
        raise InvalidRequest("input must not be empty.", param="input")
    return replace(request, history=history, input=items, tools=_with_found_tools(request, history))


async def _chain(previous: str, owner: str, store: Store) -> tuple[Item, ...]:
    record = await store.get(owner, previous)
    if record is None:
        raise PreviousResponseNotFound(previous)
    if record.status not in ("completed", "incomplete"):
        raise InvalidRequest(
            f"The response '{previous}' is {record.status} and cannot be continued.", param="previous_response_id"
        )
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
