"""How many connections there may be, and how long one may keep the server waiting.

The only clock that uvicorn has for a connection is for its rest between two requests. Here one look at all of them sees
headers that never end, bodies that trickle and clients that do not read; a request costs no timer of its own.
"""

import asyncio
import contextlib
import http
import sys
from typing import Protocol

if sys.platform != "win32":
    import fcntl
    import termios

from mellea_responses.access import log_refusal
from mellea_responses.errors import ApiError
from mellea_responses.http.errors import REQUEST_ID, encode_error, error_headers
from mellea_responses.http.turns import Turns
from mellea_responses.ids import new_id
from mellea_responses.settings import Settings

LEAST_RATE = 1024
"""Bytes a second that a body or a frame must bring on the average of each `body_timeout`."""


class Connection(Protocol):
    """What the watch looks at."""

    transport: asyncio.Transport

    def look(self, now: float) -> None:
        """Ends the connection if it has kept the server waiting for too long."""


class Watch:
    """Every connection of one server.

    Args:
        settings: How long each may wait.
        most: How many there may be; None for any number.
    """

    def __init__(self, settings: Settings, most: int | None) -> None:
        self.header, self.body, self.write = settings.header_timeout, settings.body_timeout, settings.write_timeout
        self.turns = Turns()
        self._most = most
        self._interval = max(0.02, min(1.0, self.header / 8, self.body / 8, self.write / 8))
        self._all: set[Connection] = set()
        self._fresh: dict[Connection, None] = {}  # those that have not sent a request yet, oldest first
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._all)

    def room(self) -> bool:
        """Whether there may be one more; the oldest that has said nothing yet makes room for it."""
        if self._most is None or len(self._all) < self._most:
            return True
        oldest = next(iter(self._fresh), None)
        if oldest is None:
            return False
        self.drop(oldest)
        oldest.transport.abort()
        return True

    def add(self, connection: Connection, *, fresh: bool = False) -> None:
        """Looks at a connection from now on."""
        self._all.add(connection)
        if fresh:
            self._fresh[connection] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)

    def asked(self, connection: Connection) -> None:
        """The connection has sent a request."""
        self._fresh.pop(connection, None)

    def drop(self, connection: Connection) -> None:
        """The connection is gone."""
        self._all.discard(connection)
        self._fresh.pop(connection, None)

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self._all):
            connection.look(now)
        if self._all:
            self._timer = loop.call_later(self._interval, self._look)


class Reader:
    """How a client takes what is written for it."""

    def __init__(self, watch: Watch) -> None:
        self._limit = watch.write
        self._size = 0
        self._since: float | None = None

    def moved(self) -> None:
        """It has read."""
        self._since = None

    def look(self, transport: asyncio.Transport, now: float) -> None:
        """Ends the connection when nothing of what waits has left for too long."""
        size = transport.get_write_buffer_size() and _unread(transport)
        if size == 0 or size < self._size:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since > self._limit:
            transport.abort()
        self._size = size


def _unread(transport: asyncio.Transport) -> int:
    """Bytes that wait here and, where the system tells, in its own buffer: that one empties before ours does."""
    size = transport.get_write_buffer_size()
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # closed meanwhile, or a system that does not tell
            held = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
            size += int.from_bytes(held, sys.byteorder)
    return size


class Sender:
    """How a client sends what it has begun: in every `body_timeout` as much as the least rate brings."""

    def __init__(self, watch: Watch) -> None:
        self._limit = watch.body
        self.got = 0
        self.since = 0.0

    def begin(self, now: float) -> None:
        """What comes from now on is counted."""
        self.got, self.since = 0, now

    def late(self, now: float) -> bool:
        """Whether it has become too slow."""
        if now - self.since <= self._limit:
            return False
        late = self.got < self._limit * LEAST_RATE
        self.begin(now)
        return late


def answer(error: ApiError) -> bytes:
    """A refusal as it stands on the wire; it is logged like every other."""
    body, request_id = encode_error(error), new_id("req")
    log_refusal(error, "", request_id)
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        REQUEST_ID: request_id,
        **error_headers(error),
    }
    lines = [f"HTTP/1.1 {error.status} {http.HTTPStatus(error.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
