"""The store in this process: bounded by bytes and by entries, expiring by a clock that only goes forward."""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Callable
from itertools import chain
from time import monotonic

import msgspec

from mellea_responses.store.port import ParentMissing, Record, Segment, StoreFull
from mellea_responses.wire.items import Item, is_call, item_call_id, item_id

_encode = msgspec.json.Encoder().encode

Key = tuple[str, str]  # owner, id


class _Node:
    """A segment with what it costs and how many records and segments stand on it."""

    __slots__ = ("parent", "refs", "segment", "size")

    def __init__(self, segment: Segment, parent: "_Node | None", size: int) -> None:
        self.segment, self.parent, self.size, self.refs = segment, parent, size, 0


class _Entry:
    """A record, its leaf and when it goes."""

    __slots__ = ("expires", "node", "record")

    def __init__(self, record: Record, node: _Node, expires: float) -> None:
        self.record, self.node, self.expires = record, node, expires


class MemoryStore:
    """Keeps responses until they expire or the budget is spent; then the oldest finished ones go first.

    Args:
        max_bytes: Budget for unique segments, records and logs.
        max_entries: Budget for records.
        clock: Seconds that never go back.
    """

    def __init__(self, max_bytes: int, max_entries: int, clock: Callable[[], float] = monotonic) -> None:
        self._max_bytes, self._max_entries, self._clock = max_bytes, max_entries, clock
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._nodes: dict[Key, _Node] = {}
        self._items: dict[Key, Key] = {}  # item id -> segment
        self._calls: dict[Key, Key] = {}  # call id -> segment
        self._deadlines: list[tuple[float, Key]] = []
        self._timer: asyncio.TimerHandle | None = None
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def segments(self) -> int:
        """Segments alive; for tests and metrics."""
        return len(self._nodes)

    async def open(self) -> None:
        """Nothing to connect; the sweep starts with the first record."""

    async def close(self) -> None:
        """Stops the sweep and forgets everything."""
        if self._timer is not None:
            self._timer.cancel()
        self.__init__(self._max_bytes, self._max_entries, self._clock)  # type: ignore[misc]  # back to the start

    async def put(self, record: Record, segment: Segment, ttl: float) -> None:
        """Keeps a response for `ttl` seconds; makes room by dropping the oldest finished ones."""
        key = (record.owner, record.id)
        if segment.parent is not None and (record.owner, segment.parent) not in self._nodes:
            raise ParentMissing(segment.parent)
        size = sum(len(_encode(item)) + 64 for item in segment.items)
        if record.size + size > self._max_bytes:
            raise StoreFull(f"{record.size + size} bytes")
        self._forget(key)
        node = self._add(record.owner, segment, size)
        expires = self._clock() + ttl
        self._entries[key] = _Entry(record, node, expires)
        self.bytes += record.size
        heapq.heappush(self._deadlines, (expires, key))
        self._arm()
        self._make_room(key)

    async def get(self, owner: str, response_id: str) -> Record | None:
        """The record, if it is there and its time is not over."""
        entry = self._live((owner, response_id))
        return entry.record if entry else None

    async def segment(self, owner: str, response_id: str) -> Segment | None:
        """The segment a response added."""
        entry = self._live((owner, response_id))
        return entry.node.segment if entry else None

    async def history(self, owner: str, response_id: str) -> tuple[Item, ...] | None:
        """Every item of the chain, oldest first; the items themselves are shared, not copied."""
        entry = self._live((owner, response_id))
        if entry is None:
            return None
        parts: list[tuple[Item, ...]] = []
        node: _Node | None = entry.node
        while node is not None:
            parts.append(node.segment.items)
            node = node.parent
        return tuple(chain.from_iterable(reversed(parts)))

    async def delete(self, owner: str, response_id: str) -> bool:
        """Forgets the response; segments that others stand on stay."""
        key = (owner, response_id)
        there = self._live(key) is not None
        self._forget(key)
        return there

    async def replace(self, record: Record, segment: Segment, ttl: float, *, expect_rev: int) -> bool:
        """Changes a response that is not over."""
        entry = self._live((record.owner, record.id))
        if entry is None or entry.record.terminal or entry.record.rev != expect_rev:
            return False
        await self.put(record, segment, ttl)
        return True

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        """Any stored item of the owner by its id."""
        return self._find(self._items, (owner, item_id), lambda item: _id(item) == item_id)

    async def find_call(self, owner: str, call_id: str) -> Item | None:
        """Any stored call of the owner by its call id."""
        return self._find(self._calls, (owner, call_id), lambda item: is_call(item) and item_call_id(item) == call_id)

    def _find(self, index: dict[Key, Key], key: Key, wanted: Callable[[Item], bool]) -> Item | None:
        self._sweep()
        node = self._nodes.get(index.get(key, ("", "")))
        return next((item for item in node.segment.items if wanted(item)), None) if node else None

    def _live(self, key: Key) -> _Entry | None:
        entry = self._entries.get(key)
        return entry if entry is not None and self._clock() < entry.expires else None

    def _add(self, owner: str, segment: Segment, size: int) -> _Node:
        key = (owner, segment.id)
        parent = self._nodes.get((owner, segment.parent)) if segment.parent else None
        node = self._nodes[key] = _Node(segment, parent, size + 256)
        node.refs = 1
        if parent is not None:
            parent.refs += 1
        self.bytes += node.size
        for item in segment.items:
            self._items[owner, _id(item)] = key
            if is_call(item):
                self._calls[owner, item_call_id(item) or ""] = key
        return node

    def _forget(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self.bytes -= entry.record.size
        node: _Node | None = entry.node
        while node is not None:  # a loop, since a chain may be longer than the stack is deep
            node.refs -= 1
            if node.refs:
                return
            self._drop(key[0], node)
            node = node.parent

    def _drop(self, owner: str, node: _Node) -> None:
        key = (owner, node.segment.id)
        if self._nodes.get(key) is node:
            del self._nodes[key]
        self.bytes -= node.size
        for item in node.segment.items:
            if self._items.get((owner, _id(item))) == key:
                del self._items[owner, _id(item)]
            call = (owner, item_call_id(item) or "")
            if is_call(item) and self._calls.get(call) == key:
                del self._calls[call]

    def _make_room(self, keep: Key) -> None:
        while self.bytes > self._max_bytes or len(self._entries) > self._max_entries:
            oldest = (key for key, entry in self._entries.items() if entry.record.terminal and key != keep)
            victim = next(oldest, None)
            if victim is None:
                return
            self._forget(victim)

    def _sweep(self) -> None:
        """Frees what has expired; a deadline whose entry was replaced or deleted is only dropped."""
        now = self._clock()
        while self._deadlines and self._deadlines[0][0] <= now:
            expires, key = heapq.heappop(self._deadlines)
            entry = self._entries.get(key)
            if entry is not None and entry.expires == expires:
                self._forget(key)

    def _arm(self) -> None:
        """Wakes at the next deadline, so that expired bytes go unasked."""
        if self._timer is not None or not self._deadlines:
            return
        delay = max(0.0, self._deadlines[0][0] - self._clock())
        self._timer = asyncio.get_running_loop().call_later(delay + 0.01, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._sweep()
        self._arm()


def _id(item: Item) -> str:
    return item_id(item) or ""
