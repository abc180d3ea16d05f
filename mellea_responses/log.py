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
        self._changed: asyncio.Event | None = None

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
        if self._changed is not None:
            changed, self._changed = self._changed, None
            changed.set()

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
        while True:
            if start < len(self._events):
                batch = self.encoded(start, start + BATCH)
                start += len(batch)
                yield batch
                # A reader that never waits is never cancelled; give the disconnect listener a turn.
                await asyncio.sleep(0)
            elif self._closed:
                return
            elif not await self._more(idle):
                yield []

    async def wait_closed(self) -> None:
        """Until nothing will follow."""
        while not self._closed:
            await self._more(None)

    async def _more(self, idle: float | None) -> bool:
        """Whether something happened within `idle` seconds."""
        if self._changed is None:
            self._changed = asyncio.Event()
        changed = self._changed
        try:
            async with asyncio.timeout(idle):
                await changed.wait()
        except TimeoutError:
            return False
        return True
