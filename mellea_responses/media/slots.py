"""How many may work at the same time, and how many may wait for them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mellea_responses.errors import Busy


class Slots:
    """At most `size` at work, first come first served.

    Args:
        size: How many.
        waiting: How many more may wait.
    """

    def __init__(self, size: int, waiting: int) -> None:
        self._free = asyncio.Semaphore(size)
        self._most, self._waiting = waiting, 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Holds a slot for the length of the block.

        Raises:
            Busy: too many wait already.
        """
        if self._free.locked() and self._waiting >= self._most:
            raise Busy("The server reads too many pictures and files at the moment. Try again shortly.")
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()
