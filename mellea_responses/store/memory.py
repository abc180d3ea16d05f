"""The store in this process: bounded by bytes and by entries, expiring by a clock that only goes forward."""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain
from time import monotonic

import msgspec

from mellea_responses.store.port import ParentMissing, Record, Segment, StoreFull
from mellea_responses.wire.items import Item, is_call, item_call_id, item_id

_encode = msgspec.json.Encoder().encode

Key = tuple[str, str]  # owner, id


class _Node:
    """A segment with what it costs, alone and with all it stands on, and how many records and segments stand on it."""

    __slots__ = ("parent", "refs", "segment", "size", "total")

    def __init__(self, segment: Segment, parent: "_Node | None", size: int) -> None:
        self.segment, self.parent, self.size, self.refs = segment, parent, size, 0
        self.total: int = size + (parent.total if parent else 0)


Index = dict[Key, list[_Node]]
"""The segments that hold an item; the newest comes last."""


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
        self._items: Index = {}  # by item id
        self._calls: Index = {}  # by call id
        self._deadlines: list[tuple[float, Key]] = []
        self._timer: asyncio.TimerHandle | None = None
        self.bytes = 0
        self.evicted = {"expired": 0, "full": 0}

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
        parent = self._nodes[record.owner, segment.parent] if segment.parent is not None else None
        # What it stands on counts, too: it stays as long as this does, so dropping others could not make room for it.
        node = _Node(segment, parent, 256 + sum(len(_encode(item)) + 64 for item in segment.items))
        if record.size + node.total > self._max_bytes:
            raise StoreFull(f"{record.size + node.total} bytes")
        self._add(record.owner, node)
        self._forget(key)  # afterwards: the record it replaces may be all that holds its parent
        expires = self._clock() + ttl
        self._entries[key] = _Entry(record, node, expires)
        self.bytes += record.size
        self._expect(expires, key)
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

    def _find(self, index: Index, key: Key, wanted: Callable[[Item], bool]) -> Item | None:
        self._sweep()
        nodes = index.get(key)
        return next(item for item in nodes[-1].segment.items if wanted(item)) if nodes else None

    def _live(self, key: Key) -> _Entry | None:
        entry = self._entries.get(key)
        return entry if entry is not None and self._clock() < entry.expires else None

    def _add(self, owner: str, node: _Node) -> None:
        self._nodes[owner, node.segment.id] = node
        node.refs = 1
        if node.parent is not None:
            node.parent.refs += 1
        self.bytes += node.size
        for index, name in self._names(owner, node):
            index.setdefault(name, []).append(node)

    def _names(self, owner: str, node: _Node) -> Iterator[tuple[Index, Key]]:
        """Where the items of a segment are indexed, and under what."""
        for item in node.segment.items:
            yield self._items, (owner, _id(item))
            if is_call(item):
                yield self._calls, (owner, item_call_id(item) or "")

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
        for index, name in self._names(owner, node):
            index[name].remove(node)
            if not index[name]:
                del index[name]

    def _make_room(self, keep: Key) -> None:
        while self.bytes > self._max_bytes or len(self._entries) > self._max_entries:
            oldest = (key for key, entry in self._entries.items() if entry.record.terminal and key != keep)
            victim = next(oldest, None)
            if victim is None:
                return
            self._forget(victim)
            self.evicted["full"] += 1

    def _sweep(self) -> None:
        """Frees what has expired; a deadline whose entry was replaced or deleted is only dropped."""
        now = self._clock()
        while self._deadlines and self._deadlines[0][0] <= now:
            expires, key = heapq.heappop(self._deadlines)
            entry = self._entries.get(key)
            if entry is not None and entry.expires == expires:
                self._forget(key)
                self.evicted["expired"] += 1

    def _expect(self, expires: float, key: Key) -> None:
        """Notes a deadline; those of entries that went before their time must not pile up."""
        heapq.heappush(self._deadlines, (expires, key))
        if len(self._deadlines) > 64 + 2 * len(self._entries):
            self._deadlines = [(entry.expires, key) for key, entry in self._entries.items()]
            heapq.heapify(self._deadlines)
        if self._timer is not None and self._deadlines[0][1] == key:
            self._timer.cancel()
            self._timer = None
        self._arm()

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
