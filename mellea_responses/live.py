"""Calls whose outputs may still come: kept in this process, per owner, until their time is over.

A client that stores nothing may answer a call with the bare output, or replay the call without the reasoning that led
to it. While the call is live both work as if nothing had been left out.
"""

from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, NamedTuple

import msgspec
from cachetools import TLRUCache

from mellea_responses.wire.items import (
    CustomToolCall,
    FunctionCall,
    Item,
    Reasoning,
    ToolSearchCall,
    is_call,
    item_call_id,
)

MAX_BYTES = 256 * 2**20
_OVERHEAD = 1024
"""Bytes of a call beside its items."""
_encode = msgspec.json.Encoder().encode


class LiveCall(NamedTuple):
    """A call, what the model thought before it, and everything the model had seen and said by then, in bytes too."""

    call: Item
    reasoning: Reasoning | None
    items: tuple[Item, ...]
    size: int

    def unchanged(self, item: Item) -> bool:
        """Whether the client gives the call back as it was made; an edited one is the client's own truth."""
        return type(self.call) is type(item) and _asked(self.call) == _asked(item)


def _asked(call: Item) -> Any:
    """What a call asks for. Some clients parse arguments and write them anew, which changes nothing."""
    match call:
        case FunctionCall(name=name, arguments=arguments):
            return (name, canonical(arguments))
        case CustomToolCall(name=name, input=text):
            return (name, text)
        case ToolSearchCall(arguments=arguments):
            return arguments
        case dict():
            return {key: value for key, value in call.items() if key not in ("id", "status")}
        case _:
            return None


def canonical(arguments: str) -> bytes | str:
    """A call's arguments in a form that compares, whoever wrote them; what is no JSON is as it is."""
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="sorted")
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return arguments


class LiveCalls:
    """Live calls by owner and call id; the longest unused go first.

    Args:
        ttl: Seconds a call stays live; 0 keeps none.
        max_bytes: Budget for all of them, with what was said before them.
        clock: Seconds that never go back.
    """

    def __init__(self, ttl: float, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = monotonic) -> None:
        self._ttl, self._max_bytes = ttl, max_bytes
        self._calls: TLRUCache[tuple[str, str], LiveCall] = TLRUCache(
            maxsize=max_bytes,
            ttu=lambda _key, _call, now: now + ttl,
            timer=clock,
            getsizeof=lambda call: call.size,
        )

    def __len__(self) -> int:
        self.expire()
        return len(self._calls)

    def add(self, owner: str, before: tuple[Item, ...], output: Iterable[Item]) -> None:
        """Remembers every call in `output`, the answer to `before`."""
        output = tuple(output)
        calls = sum(map(is_call, output))
        if self._ttl <= 0 or not calls:
            return
        items = before + output
        # The items are the same for each call of the answer.
        size = _OVERHEAD + sum(len(_encode(item)) + 64 for item in items) // calls
        if size > self._max_bytes:
            return
        reasoning: Reasoning | None = None
        for item in output:
            if isinstance(item, Reasoning):
                reasoning = item
            elif is_call(item) and (call_id := item_call_id(item)):
                self._calls[owner, call_id] = LiveCall(item, reasoning, items, size)

    def get(self, owner: str, call_id: str) -> LiveCall | None:
        """The live call of this owner."""
        return self._calls.get((owner, call_id))

    def expire(self) -> None:
        """Frees what is over."""
        self._calls.expire()
