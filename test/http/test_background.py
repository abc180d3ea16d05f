"""Background responses: they outlive the connection, can be polled, cancelled and read again from any event."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from mellea_responses.turn import Turn
from support.raw import get
from support.recogniser import recognise
from support.sdk import client_of
from support.serving import build_app, running, serving
from support.sse import read


async def slow(turn: Turn) -> AsyncIterator[str]:
    for i in range(30):
        yield f"{i} "
        await asyncio.sleep(0.01)


async def until_over(client: AsyncOpenAI, response_id: str) -> Any:
    while (response := await client.responses.retrieve(response_id)).status in ("queued", "in_progress"):  # noqa: ASYNC110  # polled, as a client does
        await asyncio.sleep(0.01)
    return response


async def test_it_is_queued_at_once_and_found_complete_later() -> None:
    async with serving(slow) as url:
        client = client_of(url)
        queued = await client.responses.create(model="m", input="go", background=True)
        over = await until_over(client, queued.id)

    assert queued.status == "queued"
    assert queued.output == []
    assert over.status == "completed"
    assert over.background is True
    assert over.output_text == "".join(f"{i} " for i in range(30))


async def test_while_it_waits_in_line_it_is_queued_and_then_in_progress() -> None:
    let_go = asyncio.Event()

    async def patient(turn: Turn) -> AsyncIterator[str]:
        await let_go.wait()
        yield "x"

    async with serving(patient, max_runs=1) as url:
        client = client_of(url)
        first = await client.responses.create(model="m", input="go", background=True)
        second = await client.responses.create(model="m", input="go", background=True)
        statuses = [(await client.responses.retrieve(one.id)).status for one in (first, second)]
        let_go.set()
        over = await until_over(client, second.id)
        events = [event.type async for event in await client.responses.retrieve(second.id, stream=True)]

    assert statuses == ["in_progress", "queued"]
    assert over.status == "completed"
    assert events[:3] == ["response.created", "response.queued", "response.in_progress"]


async def test_cancel_is_final_and_harmless_when_said_again() -> None:
    async with serving(slow) as url:
        client = client_of(url)
        queued = await client.responses.create(model="m", input="go", background=True)
        statuses = [
            (await client.responses.cancel(queued.id)).status,
            (await client.responses.cancel(queued.id)).status,
            (await client.responses.retrieve(queued.id)).status,
        ]

    assert statuses == ["cancelled"] * 3


async def test_cancelling_a_response_of_the_foreground_is_refused() -> None:
    async with serving(lambda turn: "x") as url:
        client = client_of(url)
        response = await client.responses.create(model="m", input="go")

        with pytest.raises(openai.BadRequestError):
            await client.responses.cancel(response.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.cancel("resp_nope")


async def test_it_must_be_stored() -> None:
    async with serving(slow) as url:
        with pytest.raises(openai.BadRequestError) as refused:
            await client_of(url).responses.create(model="m", input="go", background=True, store=False)

    assert refused.value.param == "background"


async def test_a_failure_is_kept() -> None:
    def serve(turn: Turn) -> str:
        raise RuntimeError("lost")

    async with serving(serve) as url:
        client = client_of(url)
        queued = await client.responses.create(model="m", input="go", background=True)
        over = await until_over(client, queued.id)

    assert over.status == "failed"
    assert over.error is not None


@pytest.mark.parametrize("cuts", [[0], [1], [3, 4], [2, 7, 7, 20], [5, 33]])
async def test_what_readers_see_over_any_cuts_is_exactly_the_one_stream(cuts: list[int]) -> None:
    async with serving(slow) as url:
        client = client_of(url)
        stream = await client.responses.create(model="m", input="go", background=True, stream=True)
        seen: list[Any] = []
        for cut in cuts:
            async for event in stream:
                seen.append(event)
                if event.sequence_number >= cut:
                    break
            await stream.close()
            stream = await client.responses.retrieve(
                seen[0].response.id, stream=True, starting_after=seen[-1].sequence_number
            )
        seen += [event async for event in stream]
        answer = await get(url, f"/v1/responses/{seen[0].response.id}?stream=true")

    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    whole = [frame.json for frame in read(answer.body) if frame.is_event]
    recognise(whole)
    assert [event.type for event in seen] == [event["type"] for event in whole]


async def test_a_stop_leaves_no_run_in_progress() -> None:
    app = build_app(slow)
    async with running(app) as url:
        queued = await client_of(url).responses.create(model="m", input="go", background=True)
        app.state.service.drain()
        over = await until_over(client_of(url), queued.id)

    assert over.status == "failed"
    assert over.error is not None
    assert over.error.code == "server_draining"


async def test_one_that_still_runs_cannot_be_continued_and_the_error_says_so() -> None:
    async with serving(slow) as url:
        client = client_of(url)
        queued = await client.responses.create(model="m", input="go", background=True)
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model="m", input="on", previous_response_id=queued.id)
        await client.responses.cancel(queued.id)

    assert "in_progress" in refused.value.message
    assert refused.value.param == "previous_response_id"
