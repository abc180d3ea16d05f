"""An answer as a stream of server-sent events, byte by byte."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from mellea_responses.turn import Call, CallArgs, CallEnd, Refusal, Step, Stop, Text, Thought
from support import oracle, raw, sse
from support.raw import Answer, get, post, posting
from support.recogniser import rebuild, recognise_frames, texts
from support.serving import serving
from support.stand_in import Json

ASK: Json = {"model": "local", "input": "Hello", "stream": True}
TOOLS: list[Json] = [
    {"type": "function", "name": "tide", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
    {"type": "custom", "name": "patch"},
]


def saying(*steps: Step | str) -> Any:
    """A program that gives these steps, one after the other."""

    def serve(input: Any) -> Iterator[Step | str]:
        yield from steps

    return serve


CALL = (Call("k", "tide"), CallArgs("k", '{"at":'), CallArgs("k", '"Cobh"}'), CallEnd("k"))
STORIES: dict[str, tuple[Step | str, ...]] = {
    "words": ("a", "b"),
    "nothing": (),
    "empty pieces": ("", "a", ""),
    "a thought first": (Thought("hm"), Thought(" well"), Text("Blue.")),
    "a refusal": (Refusal("I will "), Refusal("not.")),
    "a call after words": (Text("Looking. "), *CALL),
    "words while a call is open": (*CALL[:2], Text("Wait."), *CALL[2:]),
    "two calls at once": (
        Call("x", "tide"),
        Call("y", "tide"),
        CallArgs("y", "{}"),
        CallArgs("x", "{}"),
        CallEnd("y"),
        CallEnd("x"),
    ),
    "a call left open": (Call("k", "tide"), CallArgs("k", "{}")),
    "a custom call": (Call("k", "patch", kind="custom"), CallArgs("k", "*** Begin"), CallEnd("k")),
    "thoughts between words": (Text("a"), Thought("b"), Text("c"), Thought("d"), Text("e")),
    "two phases": (Text("Let me see. ", phase="commentary"), Text("Here.", phase="final_answer")),
    "cut": (Text("one two"), Stop("length")),
    "filtered": (Text("one"), Stop("content_filter")),
    "signs": ("line\nbreak\r\n", "data: x\n\nevent: y\n\n", '🌊 \u2028 \x00 \\ "', "</script>"),
}


@pytest.mark.parametrize("story", STORIES)
async def test_whatever_a_program_says_is_one_legal_stream_that_rebuilds_its_response(story: str) -> None:
    async with serving(saying(*STORIES[story])) as url:
        answer = await post(url, {**ASK, "tools": TOOLS})

        final = recognise_frames(answer.frames)
        oracle.check_events(answer.events)
        assert rebuild(answer.events) == final
        assert (await get(url, f"/v1/responses/{final['id']}")).json == final


@pytest.mark.parametrize("story", STORIES)
async def test_the_answer_in_one_piece_is_what_the_stream_ends_with(story: str) -> None:
    async with serving(saying(*STORIES[story])) as url:
        body = {**ASK, "tools": TOOLS}
        plain, streamed = await post(url, {**body, "stream": False}), await post(url, body)

        oracle.check_response(plain.json)
        assert anonymous(plain.json) == anonymous(streamed.response)
        assert (await get(url, f"/v1/responses/{plain.json['id']}")).json == plain.json


def anonymous(response: Json) -> Json:
    """A response without what differs between two answers to one question."""
    fresh = {"id", "call_id", "created_at", "completed_at"}
    plain: Json = json.loads(json.dumps(response), object_hook=lambda o: {k: v for k, v in o.items() if k not in fresh})
    return plain


async def test_the_headers_say_that_it_is_a_stream_nobody_should_hold_back() -> None:
    async with serving(saying("x")) as url:
        answer = await post(url, ASK)

    assert answer.status == 200
    assert answer.headers["content-type"].split(";")[0] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in answer.headers
    assert "content-length" not in answer.headers
    assert answer.headers["x-request-id"]


async def test_an_event_reaches_the_client_before_the_next_one_is_made() -> None:
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def serve(input: Any) -> AsyncIterator[str]:
        yield "first"
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go_on.wait(), loop))
        yield "second"

    async with serving(serve) as url, raw.exchange(url, posting(ASK)) as opened:
        deltas = (frame.json["delta"] async for frame in opened.frames() if frame.is_event and "delta" in frame.json)
        assert await anext(deltas) == "first"
        go_on.set()

        assert [delta async for delta in deltas] == ["second"]


async def test_headers_and_the_first_two_events_come_before_the_program_says_anything() -> None:
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def serve(input: Any) -> str:
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        return "late"

    async with serving(serve) as url, raw.exchange(url, posting(ASK)) as opened:
        frames = opened.frames()
        first, second = await anext(frames), await anext(frames)
        go_on.set()

        assert [first.event, second.event] == ["response.created", "response.in_progress"]
        assert len(opened.answer.chunks) == 1
        assert "late" in [frame.json.get("text") async for frame in frames if frame.is_event]


async def test_what_is_ready_together_is_written_together() -> None:
    async with serving(lambda input: [Text(str(number)) for number in range(50)]) as url:
        answer = await post(url, ASK)

    assert len(answer.events) > 50
    assert len(answer.chunks) <= 5


async def test_each_event_is_whole_in_its_write() -> None:
    async with serving(saying(*"abc")) as url:
        answer = await post(url, ASK)

    assert all(chunk.data.endswith(b"\n\n") for chunk in answer.chunks)


async def test_the_body_ends_with_done_and_the_connection_can_be_used_again() -> None:
    async with serving(saying("x")) as url:
        answer = await post(url, ASK)

    assert answer.clean
    assert answer.body.endswith(b"}\n\ndata: [DONE]\n\n")
    assert answer.ended_at is not None
    assert answer.ended_at - answer.chunks[-1].at < 1


async def test_silence_is_filled_with_comments_and_long_silence_with_a_numbered_snapshot() -> None:
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def serve(input: Any) -> Iterator[str]:
        yield "word"
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        yield " word"

    async with serving(serve, ping_seconds=0.05, beat_seconds=0.3) as url, raw.exchange(url, posting(ASK)) as opened:
        async for frame in opened.frames():
            if frame.event == "response.in_progress" and frame.json["response"]["output"]:
                go_on.set()
        answer = opened.answer

    comments = [frame for frame in answer.frames if frame.is_comment]
    assert {frame.lines for frame in comments} == {(": ping",)}
    assert len(comments) >= 2
    assert rebuild(answer.events) == recognise_frames(answer.frames)
    beat = next(event for event in answer.events[2:] if event["type"] == "response.in_progress")
    assert beat["response"]["output"][0]["content"][0]["text"] == "word"
    oracle.check_events(answer.events)


class Lost(RuntimeError):
    """A failure with words that nobody outside may read."""


def failing_after(*pieces: str) -> Any:
    def serve(input: Any) -> Iterator[str]:
        yield from pieces
        raise Lost("device lost at /srv/model.bin")

    return serve


@pytest.mark.parametrize("pieces", [(), ("one ", "two ")], ids=["at once", "after two pieces"])
async def test_a_program_that_fails_ends_its_stream_with_error_failed_and_done(pieces: tuple[str, ...]) -> None:
    async with serving(failing_after(*pieces)) as url:
        answer = await post(url, ASK)
        final = recognise_frames(answer.frames)

        assert "".join(texts(answer.events)) == "".join(pieces)
        assert [event["type"] for event in answer.events[-2:]] == ["error", "response.failed"]
        assert answer.events[-2]["error"]["type"] == "server_error"
        assert final["error"]["code"] == "server_error"
        assert (await get(url, f"/v1/responses/{final['id']}")).json == final
    for secret in (b"device lost", b"/srv", b"Lost", b"Traceback"):
        assert secret not in answer.body


async def test_a_program_that_fails_without_a_stream_is_a_500_that_sdks_do_not_repeat() -> None:
    async with serving(failing_after("one")) as url:
        answer = await post(url, {**ASK, "stream": False})

    assert answer.status == 500
    assert answer.headers["x-should-retry"] == "false"
    oracle.check_error(answer.json)
    assert (answer.error["type"], answer.error["code"]) == ("server_error", "server_error")


async def test_a_call_that_nobody_declared_never_leaves() -> None:
    async with serving(saying(Text("Let me. "), Call("k", "rm"), CallArgs("k", "{}"), CallEnd("k"))) as url:
        streamed = await post(url, {**ASK, "tools": TOOLS})
        plain = await post(url, {**ASK, "tools": TOOLS, "stream": False})

    assert b"function_call" not in streamed.body
    assert recognise_frames(streamed.frames)["error"]["code"] == "invalid_tool_call"
    assert (plain.status, plain.error["type"], plain.error["code"]) == (500, "model_error", "invalid_tool_call")


async def test_a_silent_program_is_ended_and_said_to_have_timed_out() -> None:
    done: Future[None] = Future()

    def serve(input: Any) -> str:
        done.result()
        return "too late"

    async with serving(serve, step_timeout=0.2) as url:
        answer = await post(url, ASK)
        done.set_result(None)

    assert recognise_frames(answer.frames)["error"]["code"] == "timeout"


# ---------------------------------------------------------------- a stored stream, again


async def stored(url: str, **more: Any) -> Answer:
    return await post(url, {**ASK, "tools": TOOLS, **more})


@pytest.mark.parametrize("story", STORIES)
async def test_a_stored_response_can_be_streamed_again_with_the_same_bytes(story: str) -> None:
    async with serving(saying(*STORIES[story])) as url:
        first = await stored(url)

        again = await get(url, f"/v1/responses/{first.response['id']}?stream=true")

    assert again.headers["content-type"] == first.headers["content-type"]
    assert events_of(again) == events_of(first)


def events_of(answer: Answer) -> list[sse.Frame]:
    return [frame for frame in answer.frames if not frame.is_comment]


async def test_a_response_that_was_not_streamed_can_be_streamed_later() -> None:
    async with serving(saying(*STORIES["a thought first"])) as url:
        plain = await post(url, {**ASK, "stream": False})

        again = await get(url, f"/v1/responses/{plain.json['id']}?stream=true")

    assert recognise_frames(again.frames) == plain.json


async def test_a_failed_response_can_be_streamed_again_to_its_failure() -> None:
    async with serving(failing_after("one")) as url:
        first = await stored(url)

        again = await get(url, f"/v1/responses/{first.response['id']}?stream=true")

    assert events_of(again) == events_of(first)


@pytest.mark.parametrize("number", [0, 3, 1000])
async def test_a_stream_goes_on_after_the_number_that_the_client_saw_last(number: int) -> None:
    async with serving(saying("a", "b", "c")) as url:
        first = await stored(url)

        rest = await get(url, f"/v1/responses/{first.response['id']}?stream=true&starting_after={number}")

    assert rest.status == 200
    assert events_of(rest) == events_of(first)[: len(first.events)][number + 1 :] + events_of(first)[-1:]


async def test_a_running_stream_can_be_joined_from_any_number_by_a_second_reader() -> None:
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def serve(input: Any) -> AsyncIterator[str]:
        yield "first"
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go_on.wait(), loop))
        yield "second"

    async with serving(serve) as url, raw.exchange(url, posting(ASK)) as opened:
        frames = opened.frames()
        created = (await anext(frames)).json["response"]["id"]
        second = asyncio.create_task(get(url, f"/v1/responses/{created}?stream=true&starting_after=1"))
        while "first" not in [event.get("delta") for event in opened.answer.events]:
            await anext(frames)
        live = await get(url, f"/v1/responses/{created}")
        go_on.set()
        first = await opened.finish()
        joined = await second

    assert live.json["status"] == "in_progress"
    assert events_of(joined) == events_of(first)[2:]


@pytest.mark.parametrize("query", ["stream=true&starting_after=x", "stream=true&starting_after=-2", "stream=maybe"])
async def test_a_query_that_makes_no_sense_is_refused(query: str) -> None:
    async with serving(saying("a")) as url:
        first = await stored(url)

        answer = await get(url, f"/v1/responses/{first.response['id']}?{query}")

    assert answer.status == 400
    oracle.check_error(answer.json)


async def test_a_response_that_was_not_stored_cannot_be_streamed_again() -> None:
    async with serving(saying("a")) as url:
        first = await stored(url, store=False)

        answer = await get(url, f"/v1/responses/{first.response['id']}?stream=true")

    assert answer.status == 404
    oracle.check_error(answer.json)
