"""What a request's items point at: references to stored items, outputs to calls, replays to the chain.

Items are matched by id and call id, never by place.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from mellea_responses.errors import InvalidRequest
from mellea_responses.live import LiveCall, canonical
from mellea_responses.normalize.items import InputItem, Reference, Trigger
from mellea_responses.wire import items as w
from mellea_responses.wire.items import Item, is_call, is_call_output, item_call_id, item_id

Find = Callable[[str], Awaitable[Item | None]]
"""Looks an id up among the owner's stored items."""


class Links:
    """Everything outside the request that its items may point at, for one owner.

    Args:
        find_item: Any stored item by id.
        find_call: Any stored call by call id.
        live: A call of this process by call id.
    """

    def __init__(self, find_item: Find, find_call: Find, live: Callable[[str], LiveCall | None]) -> None:
        self._find_item, self._find_call, self._live = find_item, find_call, live

    async def resolve(
        self, history: tuple[Item, ...], loose: tuple[InputItem, ...]
    ) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
        """History and input with every link followed and nothing said twice.

        Raises:
            InvalidRequest: a reference or an output points at nothing; `param` is its place, the message its id.
        """
        if not history and len(loose) == 1 and isinstance(loose[0], w.Message):
            return (), (loose[0],)  # the plain question, which points at nothing
        items = await self._dereference(history, loose)
        items = _without_replay(history, items)
        if not history:
            history = self._live_turn(items)
        seen = _Seen(history)
        new = [item for item in items if seen.is_new(item)]
        return history, tuple(await self._with_calls(history, new))

    async def _dereference(self, history: tuple[Item, ...], loose: tuple[InputItem, ...]) -> list[Item]:
        known = {item_id(item) for item in history}
        items: list[Item] = []
        for i, item in enumerate(loose):
            if isinstance(item, Trigger):
                raise InvalidRequest("compaction_trigger must be the last item.", param=f"input[{i}].type")
            if not isinstance(item, Reference):
                known.add(item_id(item))
                items.append(item)
            elif item.id not in known:
                found = await self._find_item(item.id)
                if found is None:
                    raise InvalidRequest(f"Item with id '{item.id[:80]}' was not found.", param=f"input[{i}].id")
                known.add(item.id)
                items.append(found)
        return items

    def _live_turn(self, items: list[Item]) -> tuple[Item, ...]:
        """What stands before an input that begins with the output of a live call."""
        first = items[0] if items else None
        if first is None or not is_call_output(first):
            return ()
        live = self._live(item_call_id(first) or "")
        return live.items if live else ()

    async def _with_calls(self, history: tuple[Item, ...], items: list[Item]) -> list[Item]:
        """Puts in what the client left out.

        That is the call before a bare output, and the reasoning before the assistant's turn with a replayed call.
        """
        whole: list[Item] = []
        calls = {item_call_id(item) for item in (*history, *items) if is_call(item)}
        thoughts = {item_id(item) for item in (*history, *items) if isinstance(item, w.Reasoning)}
        thought = False  # whether the client kept the reasoning of the assistant's turn it is in
        for item in items:
            call_id = item_call_id(item)
            if is_call(item) and call_id and not thought:
                live = self._live(call_id)
                if live and live.reasoning and live.unchanged(item) and live.reasoning.id not in thoughts:
                    thoughts.add(live.reasoning.id)
                    whole.insert(_turn_start(whole), live.reasoning)
            elif is_call_output(item) and call_id is not None and call_id not in calls:
                calls.add(call_id)
                whole.append(await self._call(call_id))
            thought = isinstance(item, w.Reasoning) or (thought and not _ends_a_turn(item))
            whole.append(item)
        return whole

    async def _call(self, call_id: str) -> Item:
        live = self._live(call_id)
        found = live.call if live else await self._find_call(call_id)
        if found is None:
            raise InvalidRequest(
                f"No tool call found for the output with call_id '{call_id[:80]}'. Send the call itself before it, or "
                "continue the response that made it with previous_response_id.",
                param="input",
                code="tool_call_not_found",
            )
        return found


def _turn_start(items: list[Item]) -> int:
    """Where the assistant's words just before the end begin."""
    start = len(items)
    while start and isinstance(said := items[start - 1], w.Message) and said.role == "assistant":
        start -= 1
    return start


def _ends_a_turn(item: Item) -> bool:
    """Whether what follows is another turn of the assistant's."""
    return is_call_output(item) or (isinstance(item, w.Message) and item.role != "assistant")


class _Seen:
    """What has been said already, by item id, call id and output."""

    def __init__(self, history: Iterable[Item]) -> None:
        self._ids: dict[str, Any] = {}
        self._calls: set[str] = set()
        self._outputs: dict[str, Any] = {}
        for item in history:
            self._note(item)
        self._old_ids = set(self._ids)

    def is_new(self, item: Item) -> bool:
        """Whether the item adds something.

        Raises:
            InvalidRequest: it is a second, different output of one call.
        """
        call_id, own_id = item_call_id(item), item_id(item)
        if own_id in self._old_ids or self._ids.get(own_id or "") == essence(item):
            return False
        if call_id and is_call(item) and call_id in self._calls:
            return False
        if call_id and is_call_output(item) and call_id in self._outputs:
            if self._outputs[call_id] != essence(item):
                raise InvalidRequest(
                    f"The call '{call_id[:80]}' has two different outputs.", param="input", code="duplicate_tool_output"
                )
            return False
        self._note(item)
        return True

    def _note(self, item: Item) -> None:
        call_id = item_call_id(item)
        self._ids[item_id(item) or ""] = essence(item)
        if call_id and is_call(item):
            self._calls.add(call_id)
        elif call_id and is_call_output(item):
            self._outputs[call_id] = essence(item)


def _without_replay(history: tuple[Item, ...], items: list[Item]) -> list[Item]:
    """The input without a whole chain at its front: some clients send the id of the chain and the chain itself."""
    said = list(_visible(history))
    if not said:
        return items
    rest = iter(enumerate(items))
    for expected in said:
        for _, item in rest:
            if isinstance(item, w.Reasoning):
                continue
            if essence(item) != expected:
                return items
            break
        else:
            return items
    return [item for _, item in rest]


def _visible(items: Iterable[Item]) -> Iterator[Any]:
    return (essence(item) for item in items if not isinstance(item, w.Reasoning))


def essence(item: Item) -> Any:
    """What an item says, without ids and status, in a form that compares."""
    match item:
        case w.Message():
            return (item.role, tuple(_part(part) for part in item.content))
        case w.FunctionCall():
            return ("call", item.call_id, item.name, canonical(item.arguments))
        case w.CustomToolCall():
            return ("call", item.call_id, item.name, item.input)
        case w.FunctionCallOutput() | w.CustomToolCallOutput():
            output = item.output if isinstance(item.output, str) else tuple(_part(part) for part in item.output)
            return ("output", item.call_id, output)
        case dict():
            return (item["type"], repr({key: value for key, value in item.items() if key not in ("id", "status")}))
        case _:
            return (w.item_type(item), item_call_id(item), repr(item))


def _part(part: w.Part) -> Any:
    if isinstance(part, w.OutputText | w.InputText):
        return part.text
    return repr(part)
