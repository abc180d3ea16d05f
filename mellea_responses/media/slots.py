"""How many may work at the same time; the others wait in a line that is fair between owners."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from mellea_responses.errors import Busy
from mellea_responses.fair import FairQueue

WAIT_SECONDS = 60.0


class Slots:
    """So many at work.

    Args:
        size: How many.
        waiting: How many of one owner may wait.
    """

    def __init__(self, size: int, waiting: int) -> None:
        self._free, self._most = size, waiting
        self._line: FairQueue[asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def one(self, owner: str) -> AsyncIterator[None]:
        """Holds a slot for the length of the block.

        Raises:
            Busy: too many of the owner's wait already, or the wait was too long.
        """
        if self._free and not self._line:
            self._free -= 1
        else:
            await self._wait(owner)
        try:
            yield
        finally:
            self._give()

    async def _wait(self, owner: str) -> None:
        if self._line.waiting(owner) >= self._most:
            raise Busy("The server reads as many of your files and images as it may. Try again shortly.")
        turn = asyncio.get_running_loop().create_future()
        self._line.push(owner, turn)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await turn
        except BaseException as exc:
            if not turn.cancelled():
                self._give()  # the turn came in the very moment
            else:
                with suppress(ValueError):  # passed over already
                    self._line.remove(owner, turn)
            if isinstance(exc, TimeoutError):
                raise Busy("The server reads too many files and images at the moment. Try again shortly.") from None
            raise

    def _give(self) -> None:
        """Lets the next one of those in line that still wait."""
        while self._line:
            turn = self._line.pop()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
