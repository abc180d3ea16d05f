"""The event log of one response: one writer, many readers from any index, in batches.

SSE, WebSocket, resume and the JSON answer all read from here. Events are values; they are encoded when somebody
first reads them, so an answer that nobody streams is never encoded piece by piece.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec

from mellea_responses.wire.events import Event

BATCH = 64
_encode = msgspec.json.Encoder().encode


class EventLog:
    """Append-only; the index of an event is its sequence number."""

    def __init__(self) -> None:
        self._events: list[Event | bytes] = []
        self._closed = False
        self._waiting: list[asyncio.Future[bool]] = []

    def __len__(self) -> int:
        return len(self._events)

    @property
    def closed(self) -> bool:
        """Whether the last event is there."""
        return self._closed

    def append(self, events: Sequence[Event]) -> None:
        """Adds events and wakes the readers."""
        self._events.extend(events)
        self._wake()

    def close(self) -> None:
        """Nothing will follow."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(True)
        self._waiting.clear()

    def encoded(self, start: int, stop: int) -> list[bytes]:
        """The events from `start` on as JSON, encoded once for all readers."""
        events = self._events
        batch: list[bytes] = []
        for i in range(start, min(stop, len(events))):
            event = events[i]
            if not isinstance(event, bytes):
                event = events[i] = _encode(event)
            batch.append(event)
        return batch

    async def batches(self, start: int = 0, idle: float | None = None) -> AsyncIterator[list[bytes]]:
        """Every event from `start` on, as many at a time as are ready; an empty batch after `idle` seconds."""
        patience = _Patience(idle)
        try:
            async for batch in self._batches(start, patience):
                yield batch
        finally:
            patience.end()

    async def _batches(self, start: int, patience: "_Patience") -> AsyncIterator[list[bytes]]:
        while True:
            if start < len(self._events):
                batch = self.encoded(start, start + BATCH)
                start += len(batch)
                yield batch
                # A reader that never waits is never cancelled; give the disconnect listener a turn.
                await asyncio.sleep(0)
            elif self._closed:
                return
            elif not await self._more(patience):
                yield []

    async def wait_closed(self) -> None:
        """Until nothing will follow."""
        while not self._closed:
            await self._more(_Patience(None))

    async def _more(self, patience: "_Patience") -> bool:
        """Whether something happened before the patience ran out."""
        waiter = patience.wait()
        self._waiting.append(waiter)
        try:
            return await waiter
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)


class _Patience:
    """How long one reader waits: a single timer that is moved on, since setting one up for each event costs more."""

    def __init__(self, idle: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle = idle
        self._since = 0.0
        self._waiter: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wait(self) -> "asyncio.Future[bool]":
        """A future that becomes False after `idle` seconds from now."""
        self._waiter = self._loop.create_future()
        self._since = self._loop.time()
        if self._idle is not None and self._timer is None:
            self._timer = self._loop.call_later(self._idle, self._ring)
        return self._waiter

    def end(self) -> None:
        """The reader is gone."""
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        assert self._idle is not None
        left = self._since + self._idle - self._loop.time()
        if left > 0:  # something came meanwhile
            self._timer = self._loop.call_later(left, self._ring)
            return
        self._timer = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(False)
