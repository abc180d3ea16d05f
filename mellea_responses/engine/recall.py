"""Reasoning that clients did not send back, found again by the visible conversation it belongs to."""

from collections import OrderedDict
from threading import Lock

LIMIT = 16 * 2**20
"""Characters of reasoning kept; the longest unused goes first."""


class Recall:
    """What the model thought before an answer, by owner and by the digest of the conversation with that answer."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._known: OrderedDict[tuple[str, bytes], str] = OrderedDict()
        self._limit, self._size = limit, 0
        self._lock = Lock()

    def keep(self, owner: str, turn: bytes, reasoning: str) -> None:
        """Remember; the newest of two for one turn holds."""
        with self._lock:
            self._size += len(reasoning) - len(self._known.pop((owner, turn), ""))
            self._known[owner, turn] = reasoning
            while self._size > self._limit:
                self._size -= len(self._known.popitem(last=False)[1])

    def find(self, owner: str, turn: bytes) -> str | None:
        """The reasoning, or None."""
        with self._lock:
            if (owner, turn) in self._known:
                self._known.move_to_end((owner, turn))
            return self._known.get((owner, turn))
