"""The prefix store: caches of finished turns, found by the tokens they hold.

An entry is an immutable snapshot: exact token ids and the cache that holds exactly those tokens. A prompt is looked up
by its tokens; the snapshot with the longest common beginning wins, and the row works on a fork of it, cropped to what
is shared. Forks copy nothing, so retries and branches cost no memory until they write.

A store belongs to one loaded model, so model, adapter and dtype are the same for all entries; the owner is part of the
key, and nothing is ever shared between owners.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mellea_responses.engine.splice import Trace

C = TypeVar("C")
Ids = NDArray[np.int32]


class CacheOps(Protocol[C]):
    """What the store must know about caches."""

    def fork(self, cache: C, length: int, to: int) -> C:
        """A cache of its own that holds the first `to` tokens of one that holds `length`."""

    def can_crop(self, cache: C, length: int, to: int) -> bool:
        """Whether a cache of `length` tokens can be cut to `to`."""

    def size(self, cache: C) -> int:
        """Bytes."""


class Snapshot(Generic[C]):
    """Tokens and the cache that holds exactly them.

    Args:
        owner: Whose conversation it is.
        ids: The tokens.
        cache: Their keys and values; never written to.
        size: Bytes of the cache.
        trace: The finished turn it came from.
        reason: Why it was kept.
    """

    def __init__(self, owner: str, ids: Ids, cache: C, size: int, trace: Trace | None, reason: str) -> None:
        self.owner, self.ids, self.cache, self.size, self.trace, self.reason = owner, ids, cache, size, trace, reason
        self.used = 0
        self.leases = 0


class Lease(Generic[C]):
    """A promise that a snapshot stays until it is released.

    Args:
        snapshot: What is promised.
        length: How many of its tokens are shared with the prompt.
    """

    def __init__(self, store: "PrefixStore[C]", snapshot: Snapshot[C], length: int) -> None:
        self._store: PrefixStore[C] | None = store
        self.snapshot, self.length = snapshot, length

    def fork(self) -> C:
        """A cache to write to, holding the shared tokens."""
        assert self._store is not None, "the lease was released"
        return self._store.ops.fork(self.snapshot.cache, len(self.snapshot.ids), self.length)

    def release(self) -> None:
        """Give the promise back; a second time does nothing."""
        store, self._store = self._store, None
        if store is not None:
            store.give_back(self.snapshot)


class PrefixStore(Generic[C]):
    """Snapshots within a budget of bytes; the longest unused goes first. Safe to use from any thread.

    Args:
        budget: Bytes to keep; 0 keeps nothing.
        ops: How to fork, crop and measure caches.
    """

    def __init__(self, budget: int, ops: CacheOps[C]) -> None:
        self.budget, self.ops = budget, ops
        self.dropped: Counter[str] = Counter()
        self._entries: list[Snapshot[C]] = []
        self._clock = 0
        self._lock = Lock()

    def lease(self, owner: str, tokens: Sequence[int]) -> Lease[C] | None:
        """The longest usable beginning of `tokens`. One token at least is always left to feed."""
        ids = np.asarray(tokens, dtype=np.int32)
        with self._lock:
            best, shared = None, 0
            for entry in self._entries:
                length = min(shared_tokens(entry.ids, ids), len(ids) - 1) if entry.owner == owner else 0
                if length > shared and self.ops.can_crop(entry.cache, len(entry.ids), length):
                    best, shared = entry, length
            if best is None:
                return None
            best.leases += 1
            self._touch(best)
            return Lease(self, best, shared)

    def put(self, owner: str, tokens: Sequence[int], cache: C, trace: Trace | None, reason: str) -> bool:
        """Keep a cache. Whoever gives it must not write to it any more.

        Entries of which it is a continuation are dropped, and it is not kept if it is the beginning of one: whatever
        the shorter could serve, the longer serves by cropping.

        Returns:
            Whether its tokens are kept now.
        """
        size = self.ops.size(cache)
        ids = np.asarray(tokens, dtype=np.int32)
        with self._lock:
            if not len(ids) or size > self.budget:
                self.dropped["too large"] += bool(len(ids))
                return False
            mine = [entry for entry in self._entries if entry.owner == owner]
            if any(self._serves(old.cache, old.ids, ids) and len(old.ids) > len(ids) for old in mine):
                self.dropped["known"] += 1
                return True
            self._drop("continued", lambda old: old in mine and self._serves(cache, ids, old.ids))
            entry = Snapshot(owner, ids, cache, size, trace, reason)
            self._touch(entry)
            self._entries.append(entry)
            self._shrink()
            return entry in self._entries

    def give_back(self, snapshot: Snapshot[C]) -> None:
        """End one lease."""
        with self._lock:
            snapshot.leases -= 1
            self._shrink()

    def traces(self, owner: str) -> list[Trace]:
        """What the owner's kept turns said, the newest first."""
        with self._lock:
            entries = sorted(self._entries, key=lambda entry: -entry.used)
            return [entry.trace for entry in entries if entry.owner == owner and entry.trace is not None]

    def clear(self, reason: str) -> None:
        """Drop everything that is not leased."""
        with self._lock:
            self._drop(reason, lambda entry: True)

    def counts(self) -> dict[str, int]:
        """Snapshots, leases and bytes, and how many entries were dropped for which reason."""
        with self._lock:
            return {
                "snapshots": len(self._entries),
                "leases": sum(entry.leases for entry in self._entries),
                "bytes": sum(entry.size for entry in self._entries),
                **{f"dropped: {reason}": count for reason, count in self.dropped.items()},
            }

    def _serves(self, cache: C, ids: Ids, shorter: Ids) -> bool:
        """Whether a cache can do all that one of a beginning of its tokens could."""
        return begins(ids, shorter) and self.ops.can_crop(cache, len(ids), len(shorter))

    def _touch(self, entry: Snapshot[C]) -> None:
        self._clock += 1
        entry.used = self._clock

    def _shrink(self) -> None:
        over = sum(entry.size for entry in self._entries) - self.budget
        for entry in sorted(self._entries, key=lambda entry: entry.used):
            if over <= 0:
                return
            if not entry.leases:
                over -= entry.size
                self._drop("budget", lambda other, gone=entry: other is gone)  # type: ignore[misc]  # bound by default

    def _drop(self, reason: str, unwanted: Callable[[Snapshot[C]], bool]) -> None:
        kept = [entry for entry in self._entries if entry.leases or not unwanted(entry)]
        self.dropped[reason] += len(self._entries) - len(kept)
        self._entries = kept


def shared_tokens(a: Ids, b: Ids) -> int:
    """Length of the longest common beginning."""
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    return int(differs.argmax()) if differs.any() else length


def begins(whole: Ids, beginning: Ids) -> bool:
    """Whether `whole` begins with `beginning`."""
    return len(beginning) <= len(whole) and bool((whole[: len(beginning)] == beginning).all())
