"""What one owner may hold of the server: bytes of requests, streams, sockets. The others always find their share."""

import asyncio
import json
import threading
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import websockets

from mellea_responses.errors import Busy
from mellea_responses.http.holds import Holds
from support import raw
from support.raw import Request, get, post, posting
from support.serving import build_app, running
from support.stand_in import Json

ASK: Json = {"model": "m", "input": "x"}
ADA, BOB = "ada-" + "a" * 32, "bob-" + "b" * 32
KEYS = {"api_keys": (f"ada={ADA}", f"bob={BOB}")}


def of(key: str, body: Any, path: str = "/v1/responses") -> Request:
    return posting(body, path, authorization=f"Bearer {key}")


# ---------------------------------------------------------------- the account


def test_nobody_may_hold_more_than_is_left() -> None:
    holds = Holds(100, 1)
    ada, bob, cy = (holds.enter(name) for name in ("ada", "bob", "cy"))
    ada.take(50)
    with pytest.raises(Busy):
        ada.take(1)
    bob.take(25)
    with pytest.raises(Busy):
        bob.take(1)
    cy.take(12)

    ada.release()
    bob.take(10)

    assert (holds.bytes, holds.bytes_of) == (47, {"bob": 35, "cy": 12})


def test_a_second_request_of_an_owner_adds_to_the_first() -> None:
    holds = Holds(100, 1)
    first, second = holds.enter("ada"), holds.enter("ada")
    first.take(30)
    second.take(20)
    with pytest.raises(Busy):
        second.take(1)

    first.give(10)
    second.take(10)
    first.release()
    second.release()

    second.take(10)
    second.give(10)
    assert (holds.bytes, holds.bytes_of) == (0, {})


def test_streams_are_counted_by_owner_and_given_back_once() -> None:
    holds = Holds(0, 1)
    ada, again, bob = holds.enter("ada"), holds.enter("ada"), holds.enter("bob")
    ada.stream()
    bob.stream()
    with pytest.raises(Busy):
        again.stream()
    again.release()
    ada.release()
    ada.release()

    assert (holds.streams, holds.streams_of) == (1, {"bob": 1})


# ---------------------------------------------------------------- over sockets


class Waiting:
    """A program whose answers wait until they are let go."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def serve(self, input: Any) -> Iterator[str]:
        yield "word "
        self.release.wait(60)


async def settled(app: Any) -> None:
    """Until no request holds anything."""
    while app.holds.bytes or app.holds.streams or len(app.state.service.runs):  # noqa: ASYNC110  # nothing tells
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("one_more", ["responses", "chat", "stored", "socket"])
async def test_one_stream_too_many_is_refused_before_its_headers_and_other_owners_have_theirs(one_more: str) -> None:
    program = Waiting()
    app = build_app(program.serve, max_streams=2, **KEYS)
    stream = {**ASK, "stream": True}
    async with running(app) as url, AsyncExitStack() as opened:
        first = await opened.enter_async_context(raw.exchange(url, of(ADA, stream)))
        await anext(first.frames())
        stored = f"/v1/responses/{first.answer.events[0]['response']['id']}?stream=true"
        headers = {"authorization": f"Bearer {ADA}"}
        second = await opened.enter_async_context(raw.exchange(url, Request("GET", stored, headers=headers)))
        await anext(second.frames())
        match one_more:
            case "responses":
                refused = await raw.ask(url, of(ADA, stream))
            case "chat":
                body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
                refused = await raw.ask(url, of(ADA, body, "/v1/chat/completions"))
            case "stored":
                refused = await raw.ask(url, Request("GET", stored, headers=headers))
            case _:
                with pytest.raises(websockets.InvalidStatus) as failed:
                    await websockets.connect(f"ws{url[4:]}/v1/responses", additional_headers=headers)
                answer = failed.value.response
                refused = raw.Answer(0, answer.status_code, {"retry-after": answer.headers["retry-after"]})
                refused.chunks.append(raw.Chunk(0, bytes(answer.body or b"")))
        async with raw.exchange(url, of(BOB, stream)) as other:
            assert other.answer.status == 200
        plain = asyncio.create_task(raw.ask(url, of(ADA, ASK)))
        await asyncio.sleep(0)
        program.release.set()
        assert (await plain).status == 200

    assert (refused.status, refused.error["code"]) == (429, "server_busy")
    assert int(refused.headers["retry-after"]) > 0
    assert (app.holds.bytes, app.holds.streams) == (0, 0)  # type: ignore[attr-defined]  # our own kind of application


async def test_streams_and_sockets_that_are_over_are_given_back() -> None:
    app = build_app(lambda input: "x", max_streams=1)
    async with running(app) as url:
        for _ in range(3):
            assert (await post(url, {**ASK, "stream": True})).status == 200
            async with websockets.connect(f"ws{url[4:]}/v1/responses"):
                pass
            await settled(app)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/responses/input_tokens"])
async def test_bodies_that_do_not_fit_beside_others_are_refused_with_429(path: str) -> None:
    program = Waiting()
    app = build_app(program.serve, max_body_bytes=100_000, max_held_bytes=0, **KEYS)
    large = "x" * 60_000
    async with running(app) as url:
        holding = asyncio.create_task(raw.ask(url, of(ADA, {**ASK, "input": large})))
        while not app.holds.bytes:  # type: ignore[attr-defined]  # as above  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0)
        chat = {"messages": [{"role": "user", "content": large}]}
        body = chat if "chat" in path else {"input": large}
        refused = await raw.ask(url, of(ADA, body, path))
        small = asyncio.create_task(raw.ask(url, of(ADA, ASK)))
        other = asyncio.create_task(raw.ask(url, of(BOB, {**ASK, "input": "x" * 30_000})))
        await asyncio.sleep(0)
        program.release.set()

        assert [(await one).status for one in (holding, small, other)] == [200] * 3
        await settled(app)
    assert (refused.status, refused.error["code"]) == (429, "server_busy")


async def test_what_a_body_inflates_to_is_counted_too() -> None:
    program = Waiting()
    app = build_app(program.serve, max_body_bytes=100_000, max_held_bytes=0)
    packed = zlib.compress(json.dumps({**ASK, "input": "x" * 60_000}).encode())
    request = Request(
        "POST", "/v1/responses", packed, {"content-type": "application/json", "content-encoding": "deflate"}
    )
    async with running(app) as url:
        holding = asyncio.create_task(raw.ask(url, request))
        while app.holds.bytes < 60_000:  # type: ignore[attr-defined]  # as above  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0)
        refused = await raw.ask(url, request)
        program.release.set()

        assert (await holding).status == 200
    assert refused.status == 429


async def test_a_background_response_holds_its_request_until_its_end() -> None:
    program = Waiting()
    app = build_app(program.serve, max_body_bytes=100_000, max_held_bytes=0)
    body = {**ASK, "input": "x" * 60_000, "background": True}
    async with running(app) as url:
        queued = await post(url, body)
        refused = await post(url, body)
        program.release.set()
        await settled(app)
        again = await post(url, body)

    assert [queued.status, refused.status, again.status] == [200, 429, 200]


async def test_a_frame_that_does_not_fit_is_an_error_on_its_socket_and_a_part_of_one_closes_it() -> None:
    async def serve(input: Any) -> AsyncIterator[str]:
        yield "word"
        await asyncio.to_thread(release.wait, 60)

    release = threading.Event()
    app = build_app(serve, max_body_bytes=100_000, max_held_bytes=0)
    large = json.dumps({**ASK, "type": "response.create", "input": "x" * 60_000})
    async with running(app) as url, websockets.connect(f"ws{url[4:]}/v1/responses", compression=None) as socket:
        await socket.send(large)
        while "delta" not in json.loads(await socket.recv()):
            pass
        await socket.send(large)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()
        release.set()
        await settled(app)
        assert (await get(url, "/health")).status == 200

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1013
