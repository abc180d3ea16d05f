"""From the model's thread to whoever waits on an event loop: a deque, and one wake-up for a whole step."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress

from mellea_responses.turn import Step


class Outbox:
    """Steps of one answer on their way to its reader. Made on the reader's event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._ready: deque[Sequence[Step]] = deque()
        self._ended = False
        self._error: BaseException | None = None
        self._rung = asyncio.Event()

    def put(self, steps: Sequence[Step]) -> None:
        """Called by the model's thread; the reader hears of it with the next `ring`."""
        self._ready.append(steps)

    def end(self, error: BaseException | None = None) -> None:
        """Nothing follows. Called once by the model's thread; with an error, the reader gets it raised."""
        self._error = error
        self._ended = True

    async def batches(self) -> AsyncIterator[Sequence[Step]]:
        """Everything that is ready, again and again until the end.

        Raises:
            ApiError: The answer failed.
        """
        while True:
            # Read before the deque: what was put before the end is then certainly seen.
            ended = self._ended
            self._rung.clear()
            if batch := self._taken():
                yield batch
            elif ended:
                break
            else:
                await self._rung.wait()
        if self._error is not None:
            raise self._error

    def _taken(self) -> list[Step]:
        taken: list[Step] = []
        while self._ready:
            taken.extend(self._ready.popleft())
        return taken

    def wake(self) -> None:
        """Called on the reader's loop."""
        self._rung.set()


def ring(boxes: Iterable[Outbox]) -> None:
    """Wake the readers of these boxes, one wake-up for each loop. Called by the model's thread."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Outbox]] = {}
    for box in boxes:
        by_loop.setdefault(box.loop, []).append(box)
    for loop, mine in by_loop.items():
        # A closed loop has nobody who could have read.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_wake, mine)


def _wake(boxes: list[Outbox]) -> None:
    for box in boxes:
        box.wake()
