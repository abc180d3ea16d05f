"""Bytes of WebSockets that wait to be parsed: one socket at a time, with everything else of the loop between two.

A frame may be six bytes, so that what the system hands over at once can hold a million of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable

SLICE = 2048
"""Bytes that are parsed at once: some hundreds of the smallest frames, some milliseconds."""
SECONDS = 0.002
"""After so many, others have their turn."""


class Turns:
    """Whose turn it is, of all sockets of one server."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Calls it when its turn has come, once."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting.append(go_on)

    def _next(self) -> None:
        go_on = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        go_on()
