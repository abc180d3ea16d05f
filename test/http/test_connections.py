"""Connections that never become a request, that trickle, or that do not read: each has its end."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from mellea_responses.http import requests
from support import raw
from support.raw import get, post, posting
from support.serving import build_app, running, serving

ASK = {"model": "m", "input": "x"}
HEAD = b"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
LENGTH = HEAD + b"content-length: 100000\r\n\r\n"


@asynccontextmanager
async def line(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection, and nothing sent over it yet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the server closes the connection."""
    heard = b""
    with suppress(ConnectionResetError):
        while data := await reader.read(65536):
            heard += data
    return heard


def error_of(heard: bytes) -> tuple[int, str]:
    """The status and code of the one answer."""
    head, _, body = heard.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    assert b"connection: close" in head
    error = json.loads(body)["error"]
    assert all(isinstance(error[key], str) for key in ("message", "type", "param", "code"))
    return int(head.split(b" ")[1]), error["code"]


def echo(input: Any) -> Any:
    return input[-1].content


# ---------------------------------------------------------------- what never becomes a request


async def drip(writer: asyncio.StreamWriter, piece: bytes) -> None:
    """Writes the same piece again and again until the connection ends."""
    with suppress(ConnectionError):
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("sent", [b"P", HEAD, HEAD[:-2], b"\r\n"])
async def test_headers_that_never_end_are_answered_with_408(sent: bytes) -> None:
    async with serving(echo, header_timeout=0.2) as url, line(url) as (reader, writer):
        writer.write(sent)

        assert error_of(await rest(reader)) == (408, "request_timeout")


async def test_headers_that_drip_have_no_more_time_than_others() -> None:
    async with serving(echo, header_timeout=0.2) as url, line(url) as (reader, writer):
        writer.write(HEAD)
        dripping = asyncio.create_task(drip(writer, b"x"))
        heard = await rest(reader)
        dripping.cancel()

    assert error_of(heard) == (408, "request_timeout")


async def test_a_connection_that_says_nothing_is_closed_without_a_word() -> None:
    async with serving(echo, header_timeout=0.2) as url, line(url) as (reader, _):
        assert await rest(reader) == b""


async def test_bytes_between_two_requests_keep_no_connection_open() -> None:
    async with serving(echo, header_timeout=0.2) as url, line(url) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        await reader.readuntil(b"}")
        writer.write(b"\r\n")

        assert error_of(await rest(reader)) == (408, "request_timeout")


async def test_half_a_request_behind_one_that_is_answered_does_not_end_the_answer() -> None:
    async def slow(input: Any) -> AsyncIterator[str]:
        for _ in range(8):
            await asyncio.sleep(0.05)
            yield "word "

    request = posting({**ASK, "stream": True}).encode("127.0.0.1") + posting({**ASK, "stream": True}).content
    async with serving(slow, header_timeout=0.1) as url, line(url) as (reader, writer):
        writer.write(request + b"POST /v1/resp")

        heard = await rest(reader)

    assert b"data: [DONE]" in heard
    assert heard.count(b"HTTP/1.1 200") == 1
    assert heard.count(b"HTTP/1.1 408") == 1


@pytest.mark.parametrize("piece", [b"", b"x"])
async def test_a_body_that_comes_too_slowly_is_answered_with_408(piece: bytes) -> None:
    async with serving(echo, body_timeout=0.2) as url, line(url) as (reader, writer):
        writer.write(LENGTH)
        trickling = asyncio.create_task(drip(writer, piece))
        heard = await rest(reader)
        trickling.cancel()
        assert (await post(url, ASK)).status == 200

    assert error_of(heard) == (408, "request_timeout")


async def test_a_slow_body_that_comes_fast_enough_is_read() -> None:
    request = posting({**ASK, "input": "word " * 1000})
    async with serving(echo, body_timeout=0.2, header_timeout=0.2) as url, line(url) as (reader, writer):
        writer.write(request.encode("127.0.0.1"))
        for start in range(0, len(request.content), 250):
            writer.write(request.content[start : start + 250])
            await writer.drain()
            await asyncio.sleep(0.02)

        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_body_that_is_refused_and_goes_on_to_trickle_loses_its_connection() -> None:
    async with serving(echo, body_timeout=0.2, api_keys=("k" * 32,)) as url, line(url) as (reader, writer):
        writer.write(LENGTH)

        assert (await rest(reader)).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    ("head", "key", "refusal"),
    [
        (HEAD, b"", (401, "invalid_api_key")),
        (HEAD, b"k" * 32, (413, "content_too_large")),
        (HEAD.replace(b"/responses", b"/chat/completions"), b"k" * 32, (413, "content_too_large")),
        (HEAD.replace(b"/json", b"/xml"), b"k" * 32, (415, "unsupported_media_type")),
    ],
)
async def test_a_refusal_reaches_a_client_that_has_not_sent_everything(
    head: bytes, key: bytes, refusal: tuple[int, str]
) -> None:
    body = b"x" * 20_000_000
    async with serving(echo, max_body_bytes=10**6, api_keys=("k" * 32,)) as url, line(url) as (reader, writer):
        writer.write(head + b"api-key: %b\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (key, len(body)) + body)

        assert error_of(await rest(reader)) == refusal


async def test_who_goes_on_to_send_after_its_refusal_loses_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LINGER", 0.1)
    async with serving(echo, header_timeout=0.2) as url, line(url) as (reader, writer):
        writer.write(b"what?\r\n\r\n")
        assert error_of(await rest(reader)) == (400, "invalid_http")
        await asyncio.wait_for(drip(writer, b"more"), 30)


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"x-a: " + b"a" * 70_000 + b"\r\n\r\n",
        HEAD + b"x: y\r\n" * 200 + b"\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    ],
    ids=["a large one", "many", "a long line"],
)
async def test_too_much_before_the_body_is_answered_with_431(sent: bytes) -> None:
    async with serving(echo) as url, line(url) as (reader, writer):
        writer.write(sent)

        assert error_of(await rest(reader)) == (431, "headers_too_large")
        assert (await get(url, "/health")).status == 200


@pytest.mark.parametrize("begin", [b"GET /", HEAD + b"x-a: ", HEAD], ids=["line", "value", "names"])
async def test_headers_that_grow_without_end_are_cut_off(begin: bytes) -> None:
    async with serving(echo) as url, line(url) as (reader, writer):
        writer.write(begin)
        with suppress(ConnectionError):
            for _ in range(64):
                writer.write(b"a" * 8192)
                await writer.drain()
        heard = await rest(reader)

    assert error_of(heard) == (431, "headers_too_large")


CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "more"),
    [(b"0\r\n", b"a: b\r\n"), (b"0\r\na: ", b"b" * 6), (b"1;", b"a" * 6), (b"", b"000000")],
    ids=["many trailers", "a long one", "an extension", "a length"],
)
async def test_what_is_in_no_chunk_of_a_body_is_cut_off(begin: bytes, more: bytes) -> None:
    async with serving(echo, api_keys=("k" * 32,), body_timeout=3600) as url, line(url) as (reader, writer):
        writer.write(CHUNKED)
        heard = await reader.readuntil(b"}}")  # refused already: nobody needs a key to send more
        writer.write(begin)
        dripping = asyncio.create_task(drip(writer, more * 10_000))
        heard += await rest(reader)
        dripping.cancel()

    assert heard.startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(("size", "status"), [(1, 400), (4, 400), (16, 200)])
async def test_a_body_in_too_many_small_pieces_is_refused(size: int, status: int) -> None:
    blanks = b"%x\r\n%s\r\n" % (size, b" " * size) * 5000
    async with serving(echo) as url, line(url) as (reader, writer):
        writer.write(CHUNKED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + blanks)
        writer.write(b"d\r\n" + b'{"input":"x"}' + b"\r\n0\r\n\r\n")

        assert (await rest(reader)).startswith(b"HTTP/1.1 %d" % status)


async def test_a_trailer_is_no_header() -> None:
    content = b"d\r\n" + b'{"input":"x"}' + b"\r\n0\r\ncontent-type: application/json\r\nhost: evil.example\r\n\r\n"
    async with serving(echo) as url, line(url) as (reader, writer), line(url) as (another, plain):
        writer.write(CHUNKED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + content)
        plain.write(CHUNKED.replace(b"/json", b"/xml").replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + content)

        assert (await rest(reader)).startswith(b"HTTP/1.1 200")
        assert (await rest(another)).startswith(b"HTTP/1.1 415")


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01", b"what?\r\n\r\n", b"GET / HTTP/9.9.9\r\n\r\n"])
async def test_what_is_no_http_is_told_so_in_the_shape_of_every_error(sent: bytes) -> None:
    async with serving(echo) as url, line(url) as (reader, writer):
        writer.write(sent)

        assert error_of(await rest(reader)) == (400, "invalid_http")


# ---------------------------------------------------------------- who does not read


class Endless:
    """A program that speaks until nobody listens."""

    def __init__(self) -> None:
        self.left = threading.Event()

    def serve(self, input: Any) -> Iterator[str]:
        try:
            while True:
                yield "word " * 1000
        finally:
            self.left.set()


def deaf(url: str, data: bytes, room: int = 4096) -> socket.socket:
    """A client that sends and never reads, with little room for what comes."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    client.connect(("127.0.0.1", int(url.rsplit(":", 1)[1])))
    client.sendall(data)
    return client


async def until_quiet(tasks: int) -> None:
    """Until this loop has no more tasks than it had."""
    while len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110  # nothing tells
        await asyncio.sleep(0.01)


def whole(client: socket.socket) -> bool:
    """Whether the answer's end has come, once the client reads after all."""
    heard = b""
    with client, suppress(ConnectionResetError):
        while data := client.recv(65536):
            heard += data
    return b"[DONE]" in heard


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
async def test_a_stream_that_nobody_reads_ends_with_its_run(path: str) -> None:
    program = Endless()
    body = {"model": "m", "input": "x", "messages": [{"role": "user", "content": "x"}], "stream": True}
    app = build_app(program.serve, write_timeout=0.3, max_output_bytes=2**40)
    async with running(app) as url:
        tasks = len(asyncio.all_tasks())
        request = posting(body, path)
        client = deaf(url, request.encode("127.0.0.1") + request.content)

        assert await asyncio.to_thread(program.left.wait, 60)
        await until_quiet(tasks)
        assert len(app.state.service.runs) == 0
        assert not await asyncio.to_thread(whole, client)


async def test_what_waits_for_a_client_that_does_not_read_is_bounded_and_let_go() -> None:
    app = build_app(Endless().serve, write_timeout=0.3, max_output_bytes=8 * 2**20, response_ttl=0)
    async with running(app) as url:
        tasks = len(asyncio.all_tasks())
        request = posting({**ASK, "stream": True})
        client = deaf(url, request.encode("127.0.0.1") + request.content)
        runs = app.state.service.runs
        while not len(runs):  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0)
        (run,) = runs
        await run.log.wait_closed()

        assert sum(map(len, run.log.encoded(0, len(run.log)))) < 64 * 2**20
        await until_quiet(tasks)
        assert not await asyncio.to_thread(whole, client)


async def test_a_background_response_goes_on_when_its_reader_does_not_read() -> None:
    async def serve(input: Any) -> AsyncIterator[str]:
        for _ in range(100):
            await asyncio.sleep(0.01)
            yield "word " * 10_000

    app = build_app(serve, write_timeout=0.2)
    async with running(app) as url:
        request = posting({**ASK, "stream": True, "background": True})
        client = deaf(url, request.encode("127.0.0.1") + request.content)
        runs = app.state.service.runs
        while not len(runs):  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0)
        (run,) = runs
        await run.log.wait_closed()
        assert not await asyncio.to_thread(whole, client)

    assert run.response.status == "completed"


async def test_a_slow_client_that_goes_on_reading_hears_everything() -> None:
    async def serve(input: Any) -> AsyncIterator[str]:
        for _ in range(40):
            yield "word " * 10_000

    async with serving(serve, write_timeout=0.5) as url:
        request = posting({**ASK, "stream": True})
        client = deaf(url, request.encode("127.0.0.1") + request.content, room=60_000)
        client.setblocking(False)
        loop, heard = asyncio.get_running_loop(), 0
        with client:
            while data := await loop.sock_recv(client, 60_000):
                heard += len(data)
                last = data
                await asyncio.sleep(0.005)
                if b"[DONE]" in last:
                    break

    assert heard > 40 * 50_000


UPGRADE = (
    b"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


TEXT, PING, PONG, MORE = 0x81, 0x89, 0x8A, 0x00


def frame(body: Any) -> bytes:
    """A client's text frame, masked with zeros."""
    return framed(TEXT, json.dumps({"type": "response.create", **body}).encode())


def framed(kind: int, data: bytes = b"") -> bytes:
    """Any of a client's frames."""
    length = bytes([128 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    return bytes([kind]) + length + bytes(4) + data


async def test_a_socket_that_nobody_reads_ends_with_its_run() -> None:
    program = Endless()
    app = build_app(program.serve, write_timeout=0.3, max_output_bytes=2**40)
    async with running(app) as url:
        tasks = len(asyncio.all_tasks())
        client = deaf(url, UPGRADE)
        assert (await asyncio.to_thread(client.recv, 1000)).startswith(b"HTTP/1.1 101")
        client.sendall(frame({**ASK, "input": "x" * 200}))

        assert await asyncio.to_thread(program.left.wait, 60)
        await until_quiet(tasks)
        assert len(app.state.service.runs) == 0
        client.close()


async def test_a_frame_that_trickles_costs_its_socket_and_a_socket_at_rest_stays() -> None:
    async with serving(echo, body_timeout=0.2) as url, line(url) as (reader, writer), line(url) as (at_rest, other):
        for read, write in ((reader, writer), (at_rest, other)):
            write.write(UPGRADE)
            assert (await read.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        writer.write(frame({**ASK, "input": "x" * 200})[:-10])

        assert (await rest(reader)).endswith(b"request_timeout")
        other.write(frame({**ASK, "input": "x" * 200}))
        assert b"response.created" in await at_rest.read(500)


@pytest.mark.parametrize(
    ("begin", "cheap"),
    [(b"", framed(PING)), (b"", framed(PONG)), (framed(TEXT & 0x7F), framed(MORE))],
    ids=["pings", "pongs", "empty fragments"],
)
async def test_a_flood_of_cheap_frames_keeps_nobody_waiting(begin: bytes, cheap: bytes) -> None:
    async with serving(echo) as url, line(url) as (reader, writer):
        writer.write(UPGRADE)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        writer.write(begin + cheap * 30_000 + framed(PING, b"over"))
        heard = b""
        async with line(url) as (other, asked):
            asked.write(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            health = asyncio.create_task(rest(other))
            while b"over" not in heard:
                heard += await reader.read(2**20)

            assert health.done()
            assert health.result().endswith(b'{"status":"pass"}')


async def test_who_does_not_read_is_not_answered_each_ping() -> None:
    many, ping = 100_000, framed(PING, b"x" * 125)
    async with serving(echo) as url:
        client = deaf(url, UPGRADE)
        assert (await asyncio.to_thread(client.recv, 1000)).startswith(b"HTTP/1.1 101")
        await asyncio.to_thread(client.sendall, ping * many + framed(0x88))
        heard = 0
        with client:
            while data := await asyncio.to_thread(client.recv, 2**20):
                heard += len(data)

    assert 0 < heard < many * 127


@pytest.mark.parametrize(
    "sent",
    [
        UPGRADE.replace(b"version: 13", b"version: 8"),
        UPGRADE.replace(b"sec-websocket-key", b"x-key"),
        UPGRADE[:-2] + b"content-length: 3\r\n\r\nabc",
        UPGRADE[:-2] + b"content-length: 3\r\n\r\n",
        UPGRADE[:-2] + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        UPGRADE[:-2] + b"x-long: " + b"a" * 10_000 + b"\r\n\r\n",
        UPGRADE.replace(b"responses", b"responses?x=" + b"a" * 10_000),
    ],
    ids=["an old version", "no key", "a body", "a body that never comes", "chunks", "a long header", "a long line"],
)
async def test_what_opens_no_socket_is_told_so_in_the_shape_of_every_error(sent: bytes) -> None:
    async with serving(echo) as url, line(url) as (reader, writer):
        writer.write(sent)

        assert error_of(await rest(reader)) == (400, "invalid_http")


async def test_a_plain_answer_that_nobody_reads_holds_no_connection() -> None:
    def serve(input: Any) -> str:
        return "word " * 10**6

    async with serving(serve, write_timeout=0.3) as url:
        tasks = len(asyncio.all_tasks())
        request = posting(ASK)
        client = deaf(url, request.encode("127.0.0.1") + request.content)
        await asyncio.sleep(1)
        await until_quiet(tasks)
        with client, suppress(ConnectionResetError):
            heard = 0
            client.settimeout(10)
            while data := client.recv(65536):
                heard += len(data)

    assert heard < 5 * 10**6


# ---------------------------------------------------------------- how many


async def test_requests_sent_ahead_are_answered_in_order_and_too_many_of_them_cost_the_connection() -> None:
    ask = b"GET /v1/responses/resp_%d HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    async with serving(echo) as url, line(url) as (reader, writer), line(url) as (greedy, other):
        for i in range(requests.MAX_AHEAD):
            writer.write(ask % i)
        answers = [await reader.readuntil(b"}}") for _ in range(requests.MAX_AHEAD)]
        other.write(b"".join(ask % i for i in range(3000)))
        heard = await rest(greedy)

    assert [b"resp_%d'" % i in answer for i, answer in enumerate(answers)] == [True] * requests.MAX_AHEAD
    assert heard.count(b"HTTP/1.1") < 3000


async def test_one_more_connection_takes_the_place_of_the_oldest_that_has_asked_nothing() -> None:
    async with (
        serving(echo, max_connections=3) as url,
        line(url) as (oldest, _),
        line(url) as (second, _),
        line(url),
    ):
        assert (await post(url, ASK)).status == 200
        assert await rest(oldest) == b""
        assert not second.at_eof()


async def test_with_every_connection_at_work_one_more_is_told_that_the_server_is_busy() -> None:
    request = posting({**ASK, "stream": True})
    async with serving(Endless().serve, max_connections=1) as url, raw.exchange(url, request) as opened:
        await anext(opened.frames())
        async with line(url) as (reader, _):
            assert error_of(await rest(reader)) == (429, "server_busy")
