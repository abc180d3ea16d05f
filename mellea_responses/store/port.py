"""The port of the store.

A *segment* holds the items one turn added, and points at the segment it stands on; it never changes and lives while
any record reaches it. A *record* is one stored response. So a chain costs its items once, continuing it copies
nothing, and a child keeps working when its parent expires or is deleted.
"""

from typing import Protocol

import msgspec

from mellea_responses.wire.items import Item
from mellea_responses.wire.response import TERMINAL, ResponseStatus


class StoreFull(Exception):
    """The record with everything it stands on is larger than the whole budget."""


class ParentMissing(Exception):
    """The segment stands on one that has gone meanwhile; put the whole history into it instead."""


class Segment(msgspec.Struct, frozen=True):
    """What one turn added: its input and, once it ended, its output.

    Args:
        id: The id of the response that made it.
        parent: The segment before it, None for the first.
        items: Input first, then output as the next turn stands on it. Where the parent went away while the turn
            ran, everything before it stands at the front.
    """

    id: str
    parent: str | None
    items: tuple[Item, ...]


class Record(msgspec.Struct, frozen=True):
    """One stored response.

    Args:
        id: The response's id.
        owner: Who may see it; part of every key.
        status: The status in `body`.
        body: The response object as JSON, as the client got it.
        skip: How many of the segment's items belong to earlier turns.
        inputs: How many after these are input.
        base: The response as it started, as JSON, for replays.
        said: Its steps as msgpack, for replays.
        ids: The ids its builder minted, in order.
        times: The times its builder asked for, in order.
        view: How its reasoning is shown.
        sealed: Whether its reasoning was sealed for the client; the seals are among `ids`.
        rev: Counts changes; only a response that is not over changes.
    """

    id: str
    owner: str
    status: ResponseStatus
    body: bytes
    inputs: int
    base: bytes
    said: bytes
    ids: tuple[str, ...]
    times: tuple[int, ...]
    view: str
    skip: int = 0
    sealed: bool = False
    rev: int = 0

    @property
    def terminal(self) -> bool:
        """Whether the response is over; then nothing overwrites it."""
        return self.status in TERMINAL

    @property
    def size(self) -> int:
        """Bytes that count against the budget."""
        return 512 + len(self.body) + len(self.base) + len(self.said) + 56 * len(self.ids)


class Store(Protocol):
    """What every tenant can do. Another owner's ids look like ids that never were."""

    async def open(self) -> None:
        """Connects and begins to free what expires."""

    async def close(self) -> None:
        """Lets go of everything."""

    async def put(self, record: Record, segment: Segment, ttl: float) -> None:
        """Keeps a response for `ttl` seconds.

        Raises:
            StoreFull: it does not fit even into an empty store.
            ParentMissing: the segment it stands on is gone.
        """

    async def get(self, owner: str, response_id: str) -> Record | None:
        """The record, None when it is unknown, expired, deleted or another owner's."""

    async def segment(self, owner: str, response_id: str) -> Segment | None:
        """The segment a response added."""

    async def history(self, owner: str, response_id: str) -> tuple[Item, ...] | None:
        """Every item of the chain up to and including this response, oldest first."""

    async def delete(self, owner: str, response_id: str) -> bool:
        """Forgets the response; False when it was not there."""

    async def replace(self, record: Record, segment: Segment, ttl: float, *, expect_rev: int) -> bool:
        """Changes a response that is not over; False when somebody else was first or it is over."""

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        """Any stored item of the owner by its id."""

    async def find_call(self, owner: str, call_id: str) -> Item | None:
        """Any stored call of the owner by its call id."""
