"""Server-sent events over an event log: whatever is ready goes out in one write."""

from collections.abc import AsyncIterator

from mellea_responses.log import EventLog

HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
MEDIA_TYPE = "text/event-stream"
PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
_TYPE = len(b'{"type":"')  # an event's JSON begins with its type


def frame(event: bytes) -> bytes:
    """One event with its name; the name is the event's own `type`."""
    return b"event: %b\ndata: %b\n\n" % (event[_TYPE : event.index(b'"', _TYPE)], event)


async def frames(log: EventLog, start: int, ping: float) -> AsyncIterator[bytes]:
    """The stream's body, from the event numbered `start`; a comment after `ping` seconds of silence."""
    async for batch in log.batches(start, idle=ping or None):
        last = log.closed and batch and start + len(batch) >= len(log)
        start += len(batch)
        body = b"".join([frame(event) for event in batch]) or PING
        if last:
            yield body + DONE
            return
        yield body
    yield DONE
