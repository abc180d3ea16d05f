"""What requests hold of the server while they are there, by owner: bytes of their bodies, and open streams.

Nobody may hold more bytes than are left free, so whoever comes next always finds some.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from mellea_responses.errors import Busy

Receive = Callable[[], Awaitable[Any]]


class Holds:
    """The account of one server.

    Args:
        max_bytes: Bytes of bodies in all.
        max_streams: Streams and WebSockets of one owner.
    """

    def __init__(self, max_bytes: int, max_streams: int) -> None:
        self.max_bytes, self.max_streams = max_bytes, max_streams
        self.bytes = 0
        self.streams = 0
        self.bytes_of: dict[str, int] = {}
        self.streams_of: dict[str, int] = {}

    def enter(self, owner: str) -> "Hold":
        """One request comes in; it must be released."""
        return Hold(self, owner)


class Hold:
    """What one request holds.

    Args:
        holds: The account.
        owner: Whose request it is.
    """

    __slots__ = ("_bytes", "_holds", "_over", "_owner", "_streams")

    def __init__(self, holds: Holds, owner: str) -> None:
        self._holds, self._owner = holds, owner
        self._bytes = self._streams = 0
        self._over = False

    def take(self, size: int) -> None:
        """Takes so many more bytes.

        Raises:
            Busy: its owner would hold more than is left for others.
        """
        if self._over:  # what a connection brings after its request
            return
        holds = self._holds
        own = holds.bytes_of.get(self._owner, 0) + size
        if own > holds.max_bytes - holds.bytes - size:
            raise Busy("Your requests hold as much memory as they may. Try again when some of them are answered.")
        holds.bytes_of[self._owner] = own
        holds.bytes += size
        self._bytes += size

    def give(self, size: int) -> None:
        """Gives so many bytes back."""
        if size and not self._over:
            self._bytes -= size
            self._holds.bytes -= size
            _less(self._holds.bytes_of, self._owner, size)

    def stream(self) -> None:
        """Opens a stream.

        Raises:
            Busy: its owner has as many as it may have.
        """
        holds = self._holds
        open_now = holds.streams_of.get(self._owner, 0)
        if open_now >= holds.max_streams:
            raise Busy(f"You have {open_now} streams open, as many as you may. Close one, or wait for its end.")
        holds.streams_of[self._owner] = open_now + 1
        holds.streams += 1
        self._streams += 1

    def release(self) -> None:
        """Gives everything back."""
        self.give(self._bytes)
        self._over = True
        if self._streams:
            self._holds.streams -= self._streams
            _less(self._holds.streams_of, self._owner, self._streams)
            self._streams = 0

    def counting(self, receive: Receive) -> Receive:
        """`receive`, with the body's bytes taken as they come."""

        async def counted() -> Any:
            message = await receive()
            if body := message.get("body"):
                self.take(len(body))
            return message

        return counted


def hold_of(scope: Any) -> Hold:
    """What the request of this scope holds."""
    hold: Hold = scope["state"]["hold"]
    return hold


def _less(counts: dict[str, int], owner: str, size: int) -> None:
    left = counts[owner] - size
    if left:
        counts[owner] = left
    else:
        del counts[owner]
