"""How steps cross from a program's thread or loop to the loop that serves HTTP: a deque and one pending wake-up."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence

from mellea_responses.turn import Step

HIGH_WATER = 4096
"""Steps that may wait; then the speaker waits, so that a fast program does not fill the memory."""
MOST = 256
"""Steps heard at a time; then everybody else on the loop has a turn."""


class Gone(BaseException):
    """Nobody listens any more. Not an `Exception`: a program's own `except Exception` must not swallow it."""


class ProgramEnded(RuntimeError):
    """The program raised what would end a task or a process of ours; here it only fails."""


def as_failure(error: BaseException) -> Exception:
    """What a program raised, in a form that a task can raise."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    failure = ProgramEnded(f"the program raised {type(error).__name__}")
    failure.__cause__ = error
    return failure


class Channel:
    """One speaker on any thread, one listener on the loop that made it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._steps: deque[Step] = deque()
        self._error: Exception | None = None
        self._room = threading.Event()
        self._full = False  # whether the speaker waits for room
        self._waiter: asyncio.Future[None] | None = None
        self._pending = False
        self._ended = False
        self._gone = False

    def put(self, step: Step) -> None:
        """Says a step from any thread.

        Raises:
            Gone: the listener has left.
        """
        if self._gone:
            raise Gone
        self._steps.append(step)
        self._wake()

    def wait_for_room(self) -> None:
        """Blocks the speaker's thread while the listener is far behind."""
        while len(self._steps) > HIGH_WATER and not self._gone:
            self._room.clear()
            self._full = True
            self._room.wait(0.1)

    async def room(self) -> None:
        """The same for a speaker on a loop."""
        while len(self._steps) > HIGH_WATER and not self._gone:  # noqa: ASYNC110  # see below
            await asyncio.sleep(0.005)  # no asyncio.Event reaches from the listener's loop to this one

    @property
    def gone(self) -> bool:
        """Whether the listener has left."""
        return self._gone

    def end(self, error: BaseException | None = None) -> None:
        """The speaker is done, or failed with `error`, which the listener will raise."""
        self._error, self._ended = as_failure(error) if error is not None else None, True
        self._wake()

    def leave(self) -> None:
        """The listener goes; the speaker learns it at its next step."""
        self._gone = True
        self._room.set()

    def _wake(self) -> None:
        """Asks for one wake-up if none is pending.

        No lock: the speaker adds before it looks at `_pending`, the listener clears it before it takes. Whatever the
        order, nothing is added that neither of them sees.
        """
        if self._pending or self._gone:
            return
        self._pending = True
        try:
            self._loop.call_soon_threadsafe(self._ring)
        except RuntimeError:  # the loop is closed: the server has stopped
            self._gone = True

    def _ring(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def batches(self) -> AsyncIterator[Sequence[Step]]:
        """Steps, as many at a time as are ready.

        Raises:
            Exception: what the speaker failed with.
        """
        while True:
            if not self._steps and not self._ended:
                self._waiter = self._loop.create_future()
                await self._waiter
            self._pending = False
            ended = self._ended  # read before the steps: nothing is said after the end
            batch: list[Step] = []
            while self._steps and len(batch) < MOST:
                batch.append(self._steps.popleft())
            if self._full:
                self._full = False
                self._room.set()
            if batch:
                yield batch
            if self._steps:
                await asyncio.sleep(0)  # a program faster than its listener would never let the loop turn
            if ended and not self._steps:
                if self._error is not None:
                    raise self._error
                return
