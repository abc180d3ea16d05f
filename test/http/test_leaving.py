"""Clients that leave, programs that block, and too many at once."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from support import raw
from support.raw import Request, get, post, posting
from support.recogniser import recognise_frames
from support.serving import build_app, running, serving
from support.sse import Frame
from support.stand_in import Json

ASK: Json = {"model": "m", "input": "x"}


class Watch:
    """A program's own record of how it ended, readable from another thread."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.left = threading.Event()
        self.pieces = 0

    async def serve_async(self, input: Any) -> AsyncIterator[str]:
        self.begun.set()
        try:
            while True:
                self.pieces += 1
                yield "word "
                await asyncio.sleep(0.01)
        finally:
            self.left.set()

    def serve_sync(self, input: Any) -> Iterator[str]:
        self.begun.set()
        try:
            while True:
                self.pieces += 1
                yield "word "
                time.sleep(0.01)
        finally:
            self.left.set()

    async def serve_silent(self, input: Any) -> str:
        self.begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            self.left.set()
        return ""


KINDS: dict[str, Callable[[Watch], Any]] = {
    "async generator": lambda watch: watch.serve_async,
    "generator": lambda watch: watch.serve_sync,
    "silent coroutine": lambda watch: watch.serve_silent,
}


async def happens(event: threading.Event) -> bool:
    return await asyncio.to_thread(event.wait, 5)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_that_leaves_ends_the_work_for_it(kind: str, stream: bool) -> None:
    watch = Watch()
    async with serving(KINDS[kind](watch)) as url:
        leaving = asyncio.create_task(raw.ask(url, posting({**ASK, "stream": stream})))
        assert await happens(watch.begun)
        leaving.cancel()

        assert await happens(watch.left)
        said = watch.pieces
        assert (await get(url, "/health")).status == 200
        assert watch.pieces <= said


async def test_a_client_that_had_sent_its_next_request_ahead_has_left_too() -> None:
    watch = Watch()
    request = posting(ASK)
    async with serving(watch.serve_silent) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
        writer.write((request.encode("127.0.0.1") + request.content) * 2)
        assert await happens(watch.begun)
        writer.close()

        assert await happens(watch.left)


async def test_nothing_is_folded_for_a_client_that_has_left() -> None:
    begun, left = asyncio.Event(), asyncio.Event()

    class Folding:
        name, can_compact = "p", True

        async def check(self, turn: Any, owner: str) -> None: ...

        async def compact(self, turn: Any) -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                left.set()
            return ""

        def run(self, current: Any) -> Any: ...

        def close(self) -> None: ...

    app = build_app(Folding())
    async with running(app) as url:
        leaving = asyncio.create_task(raw.ask(url, posting(ASK, "/v1/responses/compact")))
        await begun.wait()
        leaving.cancel()
        async with asyncio.timeout(5):
            await left.wait()
            while len(app.state.service.runs):  # noqa: ASYNC110  # nothing tells
                await asyncio.sleep(0.01)


async def test_what_a_client_left_is_kept_as_cancelled_with_what_was_said() -> None:
    watch = Watch()
    async with serving(watch.serve_async) as url:
        async with raw.exchange(url, posting({**ASK, "stream": True})) as opened:
            async for frame in opened.frames():
                if "delta" in frame.json:
                    break
        created = opened.answer.events[0]["response"]["id"]
        assert await happens(watch.left)
        kept = await settled(url, created)
        replayed = await get(url, f"/v1/responses/{created}?stream=true")
        continued = await post(url, {**ASK, "previous_response_id": created})

    assert kept["status"] == "cancelled"
    assert kept["output"][0]["content"][0]["text"].startswith("word ")
    assert kept["output"][0]["status"] == "incomplete"
    assert recognise_frames(replayed.frames) == kept
    assert continued.status == 400


async def settled(url: str, response_id: str) -> Json:
    """The response when nothing works on it any more."""
    while True:
        kept: Json = (await get(url, f"/v1/responses/{response_id}")).json
        if kept["status"] != "in_progress":
            return kept
        await asyncio.sleep(0.01)


async def test_the_cause_of_the_end_stands_in_one_line_per_response(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    watch = Watch()
    async with serving(watch.serve_async) as url:
        async with raw.exchange(url, posting({**ASK, "stream": True})) as opened:
            await anext(opened.frames())
        created = opened.answer.events[0]["response"]["id"]
        assert await happens(watch.left)
        await settled(url, created)

    lines = [record.getMessage() for record in caplog.records if created in record.getMessage()]
    assert len(lines) == 1
    assert "client left" in lines[0]


async def test_blocking_programs_never_stop_health_or_each_other() -> None:
    release = threading.Event()
    begun = threading.Semaphore(0)

    def serve(input: Any) -> str:
        if input[-1].content == "block":
            begun.release()
            release.wait(30)
        return "done"

    async with serving(serve) as url:
        blocked = [asyncio.create_task(post(url, {**ASK, "input": "block"})) for _ in range(5)]
        for _ in blocked:
            await asyncio.to_thread(begun.acquire)
        meanwhile = [
            await get(url, "/health"),
            await get(url, "/ready"),
            await get(url, "/v1/models"),
            await post(url, ASK),
        ]
        assert not any(task.done() for task in blocked)
        release.set()
        done = await asyncio.gather(*blocked)

    assert [answer.status for answer in meanwhile] == [200] * 4
    assert [answer.status for answer in done] == [200] * 5


async def test_an_async_program_that_blocks_its_loop_never_stops_health() -> None:
    release, begun = threading.Event(), threading.Event()

    async def serve(input: Any) -> str:
        begun.set()
        release.wait(30)
        return "done"

    async with serving(serve) as url:
        blocked = asyncio.create_task(post(url, ASK))
        assert await happens(begun)
        health = await get(url, "/health")
        assert not blocked.done()
        release.set()

        assert health.status == 200
        assert (await blocked).status == 200


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_with_every_thread_left_behind_the_answer_is_busy_and_comes_right_again(stream: bool) -> None:
    release, begun = threading.Event(), threading.Event()

    def serve(input: Any) -> str:
        begun.set()
        release.wait(30)
        return "done"

    async with serving(serve, threads=1) as url:
        async with raw.exchange(url, posting({**ASK, "stream": True})) as opened:
            await anext(opened.frames())
            assert await happens(begun)
        await settled(url, opened.answer.events[0]["response"]["id"])
        busy = await post(url, {**ASK, "stream": stream})
        release.set()
        while (later := await post(url, {**ASK, "stream": stream})).status == 429:
            pass

    assert busy.status == 429
    assert int(busy.headers["retry-after"]) >= 1
    assert (busy.error["type"], busy.error["code"]) == ("rate_limit_error", "server_busy")
    assert later.status == 200


async def test_more_answers_at_once_than_allowed_wait_with_their_headers() -> None:
    watch = Watch()
    async with serving(watch.serve_async, max_runs=1, ping_seconds=0.1) as url, AsyncExitStack() as leaving:
        first = await leaving.enter_async_context(raw.exchange(url, posting({**ASK, "stream": True})))
        await anext(first.frames())
        async with raw.exchange(url, posting({**ASK, "stream": True})) as second:
            frames = second.frames()
            opening = [await anext(frames) for _ in range(3)]
            await leaving.aclose()
            assert await next_word(frames) == "word "

    assert [frame.event for frame in opening[:2]] == ["response.created", "response.in_progress"]
    assert opening[2].is_comment


async def next_word(frames: AsyncIterator[Frame]) -> str:
    async for frame in frames:
        if frame.is_event and "delta" in frame.json:
            return str(frame.json["delta"])
    raise AssertionError("the stream ended without a word")


async def test_a_line_that_is_full_is_busy_before_the_headers() -> None:
    watch = Watch()
    async with serving(watch.serve_silent, max_runs=1, max_queued=0) as url:
        async with raw.exchange(url, posting({**ASK, "stream": True})) as opened:
            await anext(opened.frames())
            busy = await post(url, {**ASK, "stream": True})
        assert await happens(watch.left)

    assert busy.status == 429
    assert busy.headers["retry-after"]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_a_program_that_asks_its_own_server_is_told_that_it_is_busy(stream: bool) -> None:
    inner: list[Any] = []

    def serve(input: Any) -> str:
        if input[-1].content == "inner":
            return "never"
        inner.append(asyncio.run(post(url, {**ASK, "input": "inner", "stream": stream})))
        return "outer"

    async with serving(serve, threads=1, queue_timeout=0.3) as url:
        outer = await post(url, ASK)

    assert outer.status == 200
    assert outer.json["output"][0]["content"][0]["text"] == "outer"
    if stream:
        assert inner[0].response["error"]["code"] == "server_busy"
    else:
        assert (inner[0].status, inner[0].error["code"]) == (429, "server_busy")


async def test_a_client_that_leaves_in_the_middle_of_its_own_request_harms_nobody() -> None:
    async with serving(lambda input: "x") as url:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
        head = Request("POST", "/v1/responses", b"", {"content-type": "application/json", "content-length": "1000"})
        writer.write(head.encode("127.0.0.1") + b'{"input":')
        await writer.drain()
        writer.close()
        await writer.wait_closed()

        assert (await post(url, ASK)).status == 200


async def test_many_streams_at_once_each_get_their_own_words() -> None:
    async def serve(input: Any) -> AsyncIterator[str]:
        for letter in input[-1].content:
            yield letter
            await asyncio.sleep(0)

    words = [f"stream number {number}" for number in range(50)]
    async with serving(serve) as url:
        answers = await asyncio.gather(*(post(url, {**ASK, "input": word, "stream": True}) for word in words))

    finals = [recognise_frames(answer.frames) for answer in answers]
    assert [final["output"][0]["content"][0]["text"] for final in finals] == words


async def test_a_run_that_takes_too_long_in_all_is_ended() -> None:
    watch = Watch()
    async with serving(watch.serve_async, run_timeout=0.3) as url:
        answer = await post(url, {**ASK, "stream": True})
        assert await happens(watch.left)

    final = recognise_frames(answer.frames)
    assert (final["status"], final["error"]["code"]) == ("failed", "timeout")


async def test_words_over_the_servers_limit_end_the_answer_as_incomplete() -> None:
    watch = Watch()
    async with serving(watch.serve_async, max_output_bytes=50) as url:
        answer = await post(url, {**ASK, "stream": True})
        assert await happens(watch.left)

    final = recognise_frames(answer.frames)
    assert (final["status"], final["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert len(final["output"][0]["content"][0]["text"]) <= 50
