"""HTTP/1.1 by hand: exact bytes out, and every chunk as it came off the socket with the time of its arrival.

Clients normalise paths, join reads and buffer bodies. Here one `Chunk` is one chunk of the transfer encoding, which is
one send of the application, so a test can see what was written together and what came before what.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from support import sse

READ_LIMIT = 2**26


@dataclass(frozen=True)
class Chunk:
    at: float
    data: bytes


@dataclass(frozen=True)
class Request:
    """What goes out. `content` is sent as it is; a `host` among the headers takes the place of the true one."""

    method: str
    path: str
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self, host: str) -> bytes:
        fields = {"host": host, **{name.lower(): value for name, value in self.headers.items()}}
        if (self.content or self.method == "POST") and "transfer-encoding" not in fields:
            fields.setdefault("content-length", str(len(self.content)))
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


@dataclass
class Answer:
    """What came back. `ended_at` is None when the client left before the end."""

    sent_at: float
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
    headers_at: float = 0.0
    ended_at: float | None = None
    clean: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks)

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def frames(self) -> list[sse.Frame]:
        return sse.read(self.body, complete=self.clean)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [frame.json for frame in self.frames if frame.is_event]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def response(self) -> dict[str, Any]:
        """The response object, however it was sent: the last one that a stream carried."""
        if not self.is_stream:
            body: dict[str, Any] = self.json
            return body
        carried: list[dict[str, Any]] = [event["response"] for event in self.events if "response" in event]
        return carried[-1]

    @property
    def error(self) -> dict[str, Any]:
        body: dict[str, Any] = self.json["error"]
        return body


class Exchange:
    """One request on its own connection; iterate for the chunks of its answer."""

    def __init__(self, reader: asyncio.StreamReader, answer: Answer) -> None:
        self._reader = reader
        self.answer = answer

    async def read_head(self) -> None:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.answer.headers_at = monotonic()
        first, *lines = head.rstrip().split("\r\n")
        self.answer.status = int(first.split(" ")[1])
        pairs = (line.split(":", 1) for line in lines)
        self.answer.headers = {name.strip().lower(): value.strip() for name, value in pairs}

    async def chunks(self) -> AsyncIterator[Chunk]:
        """Chunks as they come; `answer.clean` afterwards says whether the body had a proper end."""
        async for data in self._body():
            chunk = Chunk(monotonic(), data)
            self.answer.chunks.append(chunk)
            yield chunk
        self.answer.ended_at = monotonic()

    async def frames(self) -> AsyncIterator[sse.Frame]:
        """Frames of an event stream as they come."""
        splitter = sse.Splitter()
        async for chunk in self.chunks():
            for frame in splitter.feed(chunk.data):
                yield frame

    async def finish(self) -> Answer:
        async for _ in self.chunks():
            pass
        return self.answer

    async def _body(self) -> AsyncIterator[bytes]:
        if "chunked" in self.answer.headers.get("transfer-encoding", ""):
            async for data in self._chunked():
                yield data
            return
        length = int(self.answer.headers.get("content-length", "0"))
        with suppress(asyncio.IncompleteReadError):
            data = await self._reader.readexactly(length)
            self.answer.clean = True
            yield data

    async def _chunked(self) -> AsyncIterator[bytes]:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                data = await self._reader.readexactly(size + 2)
                yield data[:-2]
            await self._reader.readuntil(b"\r\n")
            self.answer.clean = True


@asynccontextmanager
async def exchange(url: str, request: Request) -> AsyncIterator[Exchange]:
    """Sends `request` and waits for the head of the answer; leaving the block closes the connection."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=READ_LIMIT)
    sending = asyncio.create_task(_send(writer, request, address.netloc))
    opened = Exchange(reader, Answer(sent_at=monotonic()))
    try:
        await opened.read_head()
        yield opened
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _send(writer: asyncio.StreamWriter, request: Request, host: str) -> None:
    """A server may refuse a body before it has read it, so a broken pipe here is no failure."""
    with suppress(ConnectionError):
        writer.write(request.encode(host))
        for start in range(0, len(request.content), 2**20):
            writer.write(request.content[start : start + 2**20])
            await writer.drain()


async def ask(url: str, request: Request) -> Answer:
    """The whole answer to `request`."""
    async with exchange(url, request) as opened:
        return await opened.finish()


def posting(body: Any, path: str = "/v1/responses", **headers: str) -> Request:
    """A POST of `body` as JSON."""
    content = json.dumps(body).encode()
    return Request("POST", path, content, {"content-type": "application/json", **headers})


async def post(url: str, body: Any, path: str = "/v1/responses") -> Answer:
    return await ask(url, posting(body, path))


async def get(url: str, path: str) -> Answer:
    return await ask(url, Request("GET", path))


async def delete(url: str, path: str) -> Answer:
    return await ask(url, Request("DELETE", path))
