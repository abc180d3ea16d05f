"""Where conversations live: items in order, changed by compare-and-set so that two writers never interleave."""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from mellea_responses.store.port import StoreFull
from mellea_responses.wire.items import Item, item_id

_encode = msgspec.json.Encoder().encode


class Conversation(msgspec.Struct, frozen=True):
    """One conversation.

    Args:
        id: Its id.
        owner: Who may see it; part of every key.
        created_at: Unix seconds.
        metadata: The client's own.
        items: Everything said, oldest first.
        leaf: The response whose chain is exactly `items`, None where nothing is.
        rev: Counts changes.
    """

    id: str
    owner: str
    created_at: int
    metadata: dict[str, str] = {}
    items: tuple[Item, ...] = ()
    leaf: str | None = None
    rev: int = 0


class ConversationStore(Protocol):
    """What every tenant can do. Another owner's ids look like ids that never were."""

    async def get(self, owner: str, conversation_id: str) -> Conversation | None:
        """The conversation; using it keeps it alive."""

    async def save(self, conversation: Conversation, *, expect_rev: int | None = None) -> bool:
        """Keeps a conversation, or its next state; False when somebody else changed it first.

        Raises:
            StoreFull: it does not fit even into an empty store.
        """

    async def delete(self, owner: str, conversation_id: str) -> bool:
        """Forgets it; False when it was not there."""

    async def find_item(self, owner: str, wanted: str) -> Item | None:
        """Any item of the owner's conversations by its id."""


class _Entry(NamedTuple):
    """A conversation, the bytes of its items, those of all of it, and when it goes."""

    conversation: Conversation
    items: int
    bytes: int
    deadline: float


class MemoryConversations:
    """Conversations in this process, for `ttl` seconds after their last use; the longest unused go first.

    Args:
        max_bytes: Budget for all of them.
        ttl: Seconds a conversation lives unused.
        clock: Seconds that never go back.
    """

    def __init__(self, max_bytes: int, ttl: float, clock: Callable[[], float] = monotonic) -> None:
        self._max_bytes, self._ttl, self._clock = max_bytes, ttl, clock
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()  # the next to expire comes first
        self._items: dict[tuple[str, str], tuple[str, str]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        self.expire()
        return len(self._entries)

    async def get(self, owner: str, conversation_id: str) -> Conversation | None:
        """The conversation, alive for another `ttl`."""
        self.expire()
        key = (owner, conversation_id)
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._keep(key, entry._replace(deadline=self._clock() + self._ttl))
        return entry.conversation

    async def save(self, conversation: Conversation, *, expect_rev: int | None = None) -> bool:
        """Keeps it if nobody changed it meanwhile."""
        self.expire()
        key = (conversation.owner, conversation.id)
        before = self._entries.get(key)
        if expect_rev is not None and (before is None or before.conversation.rev != expect_rev):
            return False
        items = _size_of_items(conversation, before)
        size = 1024 + items + len(_encode(conversation.metadata))
        if size > self._max_bytes:
            raise StoreFull(f"{size} bytes")
        self._forget(key)
        self.bytes += size
        self._items.update({(conversation.owner, item_id(item) or ""): key for item in conversation.items})
        kept = replace(conversation, rev=conversation.rev + 1)
        self._keep(key, _Entry(kept, items, size, self._clock() + self._ttl))
        while self.bytes > self._max_bytes:
            self._forget(next(iter(self._entries)))
        return True

    async def delete(self, owner: str, conversation_id: str) -> bool:
        """Forgets it."""
        self.expire()
        there = (owner, conversation_id) in self._entries
        self._forget((owner, conversation_id))
        return there

    async def find_item(self, owner: str, wanted: str) -> Item | None:
        """Any item of the owner's conversations."""
        self.expire()
        entry = self._entries.get(self._items.get((owner, wanted), ("", "")))
        return next((item for item in entry.conversation.items if item_id(item) == wanted), None) if entry else None

    def expire(self) -> None:
        """Frees what nobody has used for `ttl` seconds."""
        now = self._clock()
        while self._entries and next(iter(self._entries.values())).deadline <= now:
            self._forget(next(iter(self._entries)))

    def _keep(self, key: tuple[str, str], entry: _Entry) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)

    def _forget(self, key: tuple[str, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self.bytes -= entry.bytes
        for item in entry.conversation.items:
            if self._items.get((key[0], item_id(item) or "")) == key:
                del self._items[key[0], item_id(item) or ""]


def _size_of_items(conversation: Conversation, before: _Entry | None) -> int:
    """Only what was added is encoded again, so that a long conversation is not counted anew each turn."""
    old = before.conversation.items if before else ()
    grown = before is not None and conversation.items[: len(old)] == old
    start, base = (len(old), before.items) if grown and before else (0, 0)
    return base + sum(len(_encode(item)) + 64 for item in conversation.items[start:])
