"""Whose turn it is: so many answers are made at once, the others wait in a line that is fair between owners.

A place is entered once and left once, in whatever way its request ends. With a slot free neither a task nor a wait is
needed.
"""

import asyncio
import contextlib
from collections.abc import Callable

from mellea_responses.errors import Busy
from mellea_responses.fair import FairQueue


class Place:
    """One request's place: answered now, or in line.

    Args:
        admission: Where it is.
        owner: Whose it is.
        turn: Done when its turn has come; None when it has come already.
    """

    __slots__ = ("_admission", "_left", "_turn", "owner")

    def __init__(self, admission: "Admission", owner: str, turn: "asyncio.Future[None] | None") -> None:
        self._admission, self.owner, self._turn = admission, owner, turn
        self._left = False

    @property
    def waiting(self) -> bool:
        """Whether it is still in line."""
        return self._turn is not None

    async def turn(self) -> None:
        """Until its turn has come."""
        if self._turn is not None:
            await self._turn

    def admit(self) -> None:
        """Its turn has come."""
        turn, self._turn = self._turn, None
        if turn is not None and not turn.done():
            turn.set_result(None)

    def leave(self) -> None:
        """Gives the slot, or the place in line, to whoever is next. Left once, it stays left."""
        if not self._left:
            self._left = True
            self._admission.left(self)


class Admission:
    """Every place of this process.

    Args:
        most: Answers made at the same time.
        queued: Requests of one owner that may wait.
        capacity: How many runs the program can take now, None for any number: its threads without those that an
            answer has left behind.
    """

    def __init__(self, most: int, queued: int, capacity: Callable[[], int | None] | None = None) -> None:
        self._most, self._queued, self._capacity = most, queued, capacity
        self._line: FairQueue[Place] = FairQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.active = 0

    @property
    def waiting(self) -> int:
        """Requests in line, of all owners."""
        return len(self._line)

    def enter(self, owner: str) -> Place:
        """A place for one request of this owner.

        Raises:
            Busy: the owner's line is full, or nothing in it could ever move.
        """
        room = self._room()
        if self.active < room and not self._line:
            self.active += 1
            return Place(self, owner, None)
        if room <= 0:
            raise Busy("Everything that could answer is taken by programs that do not return. Try again later.")
        if self._line.waiting(owner) >= self._queued:
            raise Busy("The server is busy, and as many of your requests wait as may wait. Try again shortly.")
        self._loop = asyncio.get_running_loop()
        place = Place(self, owner, self._loop.create_future())
        self._line.push(owner, place)
        self.look()
        return place

    def left(self, place: Place) -> None:
        """The place is given back."""
        if place.waiting:
            self._line.remove(place.owner, place)
        else:
            self.active -= 1
        if self._line:
            self.look()

    def look(self) -> None:
        """Gives free slots to those who wait, owners in turn."""
        while self._line and self.active < self._room():
            self.active += 1
            self._line.pop().admit()

    def freed(self) -> None:
        """The program can take more again; said from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server has stopped
                self._loop.call_soon_threadsafe(self.look)

    def _room(self) -> int:
        room = self._capacity() if self._capacity is not None else None
        return self._most if room is None else min(self._most, room)
