"""A queue that serves owners in turn, so that one busy client cannot make the others wait behind all its requests."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First in, first out within an owner; round robin between owners."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __bool__(self) -> bool:
        return bool(self._lines)

    def waiting(self, owner: str) -> int:
        """How many items this owner has in line."""
        return len(self._lines.get(owner, ()))

    def push(self, owner: str, item: T) -> None:
        self._lines.setdefault(owner, deque()).append(item)

    def pop(self) -> T:
        """The first item of the owner that has waited longest for a turn.

        Raises:
            IndexError: The queue is empty.
        """
        if not self._lines:
            raise IndexError("pop from an empty queue")
        owner, line = next(iter(self._lines.items()))
        item = line.popleft()
        del self._lines[owner]
        if line:
            self._lines[owner] = line
        return item

    def remove(self, owner: str, item: T) -> None:
        """Takes one item out of its owner's line.

        Raises:
            ValueError: It is not there.
        """
        line = self._lines.get(owner, deque())
        line.remove(item)
        if not line:
            del self._lines[owner]

    def take(self, wanted: Callable[[T], bool]) -> list[T]:
        """Remove and return every item that `wanted` says yes to."""
        taken = [item for line in self._lines.values() for item in line if wanted(item)]
        if taken:
            kept = ((owner, deque(i for i in line if not wanted(i))) for owner, line in self._lines.items())
            self._lines = OrderedDict((owner, line) for owner, line in kept if line)
        return taken
