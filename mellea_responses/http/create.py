"""`POST /v1/responses` as plain ASGI.

The one route that every turn takes. Building the framework's request, resolving its parameters and building its
response cost nearly half the CPU of a plain answer (docs/performance.md), so the application calls this directly; the
same body, errors and headers as every other route, by the same functions. It is registered with the framework too,
which knows the route and its methods.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

import msgspec
from litestar.types import Receive, Scope, Send
from msgspec.structs import replace

from mellea_responses.errors import ApiError, ContentTooLarge
from mellea_responses.http import sse
from mellea_responses.http.body import check_json, inflate, without_mark
from mellea_responses.http.errors import REQUEST_ID, encode_error, error_headers, own_failure
from mellea_responses.http.holds import Hold, hold_of
from mellea_responses.http.paths import paths
from mellea_responses.http.unsupported import unsupported
from mellea_responses.ids import new_id
from mellea_responses.runs import Run
from mellea_responses.service import Service
from mellea_responses.wire.decode import decode_create
from mellea_responses.wire.response import Response

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_WATCHED_AFTER = 0.1
"""Seconds that a request is prepared before its connection is watched."""
CREATE_PATHS = frozenset(paths("/responses"))
_JSON = (b"content-type", b"application/json")
_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8")] + [
    (key.encode(), value.encode()) for key, value in sse.HEADERS.items()
]


class CreateRoute:
    """Answers `POST /v1/responses`.

    Args:
        service: What answers.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as an ASGI application."""
        request_id = new_id("req")
        stamp = (REQUEST_ID.encode(), request_id.encode())
        started = False
        try:
            run = await self._start(scope, receive, request_id)
            if run is None:
                return
            headers = [stamp]
            if run.turn.unsupported_tools:
                headers += [(key.encode(), value.encode()) for key, value in unsupported(run.turn).items()]
            if run.turn.request.stream:
                started = True
                await self._stream(run, receive, send, headers)
            elif run.background:
                await _send(send, 200, _encode(run.queued), headers)
                await run.log.wait_closed()  # until then it holds what was sent
            else:
                body = _encode(await result_unless_gone(run, receive))
                await _send(send, 200, body, headers)
        except Exception as exc:
            # The error gets no name: one that outlives this block would keep the body until the collector comes.
            if started:
                own_failure(exc, request_id)
            else:
                await self._refuse(scope, send, own_failure(exc, request_id), request_id)

    async def _refuse(self, scope: Scope, send: Send, error: ApiError, request_id: str) -> None:
        self._service.refused(error, scope["state"]["owner"], request_id)
        headers = {REQUEST_ID: request_id, **error_headers(error)}
        await _send(send, error.status, encode_error(error), [(k.encode(), v.encode()) for k, v in headers.items()])

    async def _start(self, scope: Scope, receive: Receive, request_id: str) -> Run | None:
        """The run, or None when the client left before there was one."""
        kind, encoding, length = _about_body(scope["headers"])
        check_json(kind)
        limit = self._service.settings.max_body_bytes
        if length is not None and length > limit:
            raise _too_large(limit)
        hold = hold_of(scope)
        body = await _read(receive, limit, hold)
        if body is None:
            return None
        if encoding:
            packed, body = len(body), inflate(body, encoding, limit)
            hold.take(max(0, len(body) - packed))
        request = decode_create(without_mark(body))
        if request.stream:
            hold.stream()
        if request.generate is not None or request.stream_id is not None:
            request = replace(request, generate=None, stream_id=None)  # a socket's own
        made = self._service.create(request, scope["state"]["owner"], request_id)
        return await made if request.background else await unless_gone(made, receive)

    async def _stream(self, run: Run, receive: Receive, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        """The run's events; a client that leaves ends the run, unless it goes on in the background."""
        sender = asyncio.current_task()
        gone = False

        async def watch() -> None:
            nonlocal gone
            await _disconnected(receive)
            gone = True
            if sender is not None:
                sender.cancel()

        watcher = asyncio.ensure_future(watch())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*_STREAM, *headers]})
            async for piece in sse.frames(run.log, 0, self._service.settings.ping_seconds):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not gone:
                raise
        except OSError:
            pass  # the client left while something was being sent
        finally:
            watcher.cancel()
            if not run.background:
                run.cancel("client left")
        await run.log.wait_closed()  # a background run whose reader has left holds what was sent


async def unless_gone(made: Awaitable[T], receive: Receive) -> T | None:
    """What is made for a client, or None when it leaves first: files that nobody waits for are not read.

    Most is made before it is worth to look after the connection.
    """
    task, watcher, gone = asyncio.current_task(), None, False

    async def watch() -> None:
        nonlocal gone
        await _disconnected(receive)
        gone = True
        if task is not None:
            task.cancel()

    def begin() -> None:
        nonlocal watcher
        watcher = asyncio.ensure_future(watch())

    timer = asyncio.get_running_loop().call_later(_WATCHED_AFTER, begin)
    try:
        return await made
    except asyncio.CancelledError:
        if not gone:
            raise
        return None
    finally:
        timer.cancel()
        if watcher is not None:
            watcher.cancel()


async def result_unless_gone(run: Run, receive: Receive) -> Response:
    """The response at its end. The connection is watched meanwhile: nobody to answer, nothing to generate."""
    await asyncio.sleep(0)
    if run.done:  # nothing to watch over
        return await run.result()

    async def watch() -> None:
        await _disconnected(receive)
        run.cancel("client left")

    watcher = asyncio.ensure_future(watch())
    try:
        return await run.result()
    finally:
        watcher.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read(receive: Receive, limit: int, hold: Hold) -> bytes | None:
    message = await receive()
    pieces, size = [], 0
    while message["type"] == "http.request":
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        hold.take(len(piece))
        pieces.append(piece)
        if not message.get("more_body"):
            return b"".join(pieces) if len(pieces) > 1 else pieces[0]
        message = await receive()
    return None


def _about_body(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, str, int | None]:
    kind, encoding, length = "", "", None
    for key, value in headers:
        if key == b"content-type":
            kind = value.decode("latin-1")
        elif key == b"content-encoding":
            encoding = value.decode("latin-1")
        elif key == b"content-length" and value.isdigit():
            length = int(value)
    return kind, encoding, length


def _too_large(limit: int) -> ContentTooLarge:
    return ContentTooLarge(f"The body is larger than {limit} bytes.")


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": False})
