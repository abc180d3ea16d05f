"""What was read, kept for the next turns of its owner: within a budget, for as long as responses are."""

from collections.abc import Callable
from hashlib import blake2b
from time import monotonic

from cachetools import TLRUCache

Value = str | int
_OVERHEAD = 256
"""Bytes of an entry beside its value."""


class Cache:
    """Values by the digest of what they were read from; the least recently used go first.

    Args:
        max_bytes: Budget for all owners together.
        ttl: Seconds an entry stays; 0 keeps none.
        clock: Seconds that never go back.
    """

    def __init__(self, max_bytes: int, ttl: float, clock: Callable[[], float] = monotonic) -> None:
        self._kept: TLRUCache[bytes, Value] = TLRUCache(
            maxsize=max_bytes if ttl > 0 else 0, ttu=lambda _key, _value, now: now + ttl, timer=clock, getsizeof=_size
        )

    @staticmethod
    def key(owner: str, *source: str) -> bytes:
        """What stands for a source, of one owner: nobody learns from another's cache what another has sent."""
        digest = blake2b(digest_size=32)
        for text in (owner, *source):
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big"))
            digest.update(data)
        return digest.digest()

    def get(self, key: bytes) -> Value | None:
        """What was read, if it is still kept."""
        return self._kept.get(key)

    def put(self, key: bytes, value: Value) -> None:
        """Keeps it, unless it is larger than the budget."""
        self._kept.expire()
        if _size(value) <= self._kept.maxsize:
            self._kept[key] = value

    def expire(self) -> None:
        """Frees what is over."""
        self._kept.expire()

    @property
    def bytes(self) -> int:
        """What all entries take."""
        self._kept.expire()
        return int(self._kept.currsize)


def _size(value: Value) -> int:
    return _OVERHEAD + (len(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else 0)
