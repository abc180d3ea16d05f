"""WebSocket on `/v1/responses`: many turns on one socket, every failure a frame, nothing left behind."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import websockets

from mellea_responses.http import websocket as shell
from mellea_responses.turn import Call, CallArgs, CallEnd, Step, Text, Turn
from support import oracle
from support.recogniser import recognise
from support.sdk import client_of
from support.serving import build_app, running, serving

ENDS = {"response.completed", "response.failed", "response.incomplete", "error", "response.steer.failed"}


def is_end(event: dict[str, Any]) -> bool:
    """An `error` inside a run is numbered and followed by `response.failed`; one of the socket is not."""
    return event["type"] in ENDS and not (event["type"] == "error" and "sequence_number" in event)


def texts(turn: Turn) -> list[str]:
    return [part.text for item in turn.items for part in getattr(item, "content", [])]


async def echo(turn: Turn) -> str:
    return json.dumps(texts(turn))


class Client:
    """Frames in and out, as a client sees them."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self.socket = socket

    async def send(self, **frame: Any) -> None:
        await self.socket.send(json.dumps({"type": "response.create", **frame}))

    async def receive(self) -> list[dict[str, Any]]:
        events = []
        while not events or not is_end(events[-1]):
            events.append(json.loads(await self.socket.recv()))
        return events

    async def turn(self, **frame: Any) -> dict[str, Any]:
        await self.send(**frame)
        return (await self.receive())[-1]


def address(url: str, path: str = "/v1/responses") -> str:
    return url.replace("http", "ws") + path


@asynccontextmanager
async def connected(url: str, path: str = "/v1/responses", **more: Any) -> AsyncIterator[Client]:
    # Without a bound of its own the client always reads, so that it hears the answer to its close at once.
    async with websockets.connect(address(url, path), max_queue=None, **more) as socket:
        yield Client(socket)


def said(terminal: dict[str, Any]) -> str:
    text: str = terminal["response"]["output"][0]["content"][0]["text"]
    return text


@pytest.mark.parametrize("path", ["/v1/responses", "/responses"])
async def test_the_events_are_those_of_a_stream_and_the_socket_goes_on(path: str) -> None:
    async with serving(echo) as url, connected(url, path) as client:
        for word in ("one", "two"):
            await client.send(input=word, model="m")
            events = await client.receive()

            recognise(events)
            for event in events:
                oracle.check_event(event)
            assert said(events[-1]) == json.dumps([word])


async def test_a_nested_response_object_and_fields_of_http_are_understood() -> None:
    async with serving(echo) as url, connected(url) as client:
        answer = await client.turn(response={"input": "nested"}, stream=True, background=True)

        assert said(answer) == '["nested"]'
        assert answer["response"]["background"] is False


async def test_a_stream_id_is_on_every_event_of_its_turn() -> None:
    async with serving(echo) as url, connected(url) as client:
        await client.send(input="a", stream_id="lane")
        assert {event["stream_id"] for event in await client.receive()} == {"lane"}

        await client.send(input="a")
        assert not [event for event in await client.receive() if "stream_id" in event]


async def test_frames_are_answered_one_after_the_other_in_the_order_they_came() -> None:
    async with serving(echo) as url, connected(url) as client:
        for i in range(5):
            await client.send(input=str(i), stream_id=str(i))
        turns = [await client.receive() for _ in range(5)]

    assert [said(events[-1]) for events in turns] == [f'["{i}"]' for i in range(5)]
    assert all(len({event["stream_id"] for event in events}) == 1 for events in turns)


async def test_a_prewarm_runs_nothing_and_can_be_continued() -> None:
    runs = []

    def serve(turn: Turn) -> str:
        runs.append(turn)
        return json.dumps(texts(turn))

    async with serving(serve) as url, connected(url) as client:
        warm = await client.turn(input="rules", generate=False, store=False)
        answer = await client.turn(input="hi", previous_response_id=warm["response"]["id"], store=False)

    assert warm["response"]["status"] == "completed"
    assert warm["response"]["output"] == []
    assert said(answer) == '["rules", "hi"]'
    assert len(runs) == 1


async def test_only_the_latest_unstored_response_can_be_continued_and_only_on_its_socket() -> None:
    async with serving(echo) as url:
        async with connected(url) as client:
            first = await client.turn(input="a", store=False)
            second = await client.turn(input="b", store=False, previous_response_id=first["response"]["id"])
            late = await client.turn(input="c", store=False, previous_response_id=first["response"]["id"])
        async with connected(url) as client:
            gone = await client.turn(input="d", previous_response_id=second["response"]["id"])

    assert said(second) == json.dumps(["a", '["a"]', "b"])
    for error in (late, gone):
        assert error["type"] == "error"
        assert error["status"] == 400
        assert error["error"]["code"] == "previous_response_not_found"
        assert all(isinstance(value, str) for value in error["error"].values())


async def test_a_stored_response_can_be_continued_from_anywhere() -> None:
    async with serving(echo) as url:
        async with connected(url) as client:
            first = await client.turn(input="a")
            await client.turn(input="between", store=False)
        async with connected(url) as client:
            second = await client.turn(input="b", previous_response_id=first["response"]["id"])

    assert said(second) == json.dumps(["a", '["a"]', "b"])


async def test_a_failed_continuation_makes_its_id_unknown() -> None:
    def serve(turn: Turn) -> str:
        if "fail" in texts(turn):
            raise RuntimeError("lost")
        return "x"

    async with serving(serve) as url, connected(url) as client:
        first = (await client.turn(input="a", store=False))["response"]["id"]
        failed = await client.turn(input="fail", store=False, previous_response_id=first)
        again = await client.turn(input="b", store=False, previous_response_id=first)

    assert failed["type"] == "response.failed"
    assert again["error"]["code"] == "previous_response_not_found"


async def test_two_tool_turns_go_by_their_outputs_alone() -> None:
    def serve(turn: Turn) -> list[Step]:
        outputs = [item.output for item in turn.items if hasattr(item, "output")]
        if len(outputs) < 2:
            return [Call("k", "tide"), CallArgs("k", "{}"), CallEnd("k")]
        return [Text(json.dumps(outputs))]

    tools = [{"type": "function", "name": "tide"}]
    async with serving(serve) as url, connected(url) as client:
        answer = await client.turn(input="go", tools=tools, store=False)
        for output in ("1", "2"):
            call = answer["response"]["output"][0]
            item = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
            answer = await client.turn(
                input=[item], tools=tools, store=False, previous_response_id=answer["response"]["id"]
            )

    assert said(answer) == '["1", "2"]'


@pytest.mark.parametrize(
    ("frame", "status", "code"),
    [
        ("nonsense", 400, "invalid_json"),
        ("[" * 100_000, 400, "invalid_json"),
        ("[1]", 400, "invalid_request"),
        ("{}", 400, "invalid_request"),
        ('{"type":["response.create"]}', 400, "invalid_request"),
        ('{"type":"response.create","input":"x","stream_id":5}', 400, "invalid_request"),
        ('{"type":"response.create","input":"x","stream_id":"' + "x" * 2000 + '"}', 400, "invalid_request"),
        ('{"type":"response.what"}', 400, "invalid_request"),
        ('{"type":"response.create"}', 400, "invalid_request"),
        ('{"type":"response.create","input":5}', 400, "invalid_request"),
        ('{"type":"response.create","input":"' + "x" * 5000 + '"}', 413, "content_too_large"),
    ],
)
async def test_a_bad_frame_is_an_error_and_the_socket_stays_open(frame: str, status: int, code: str) -> None:
    async with serving(echo, max_body_bytes=4096) as url, connected(url) as client:
        await client.socket.send(frame if len(frame) < 90_000 else frame[:4000])
        error = json.loads(await client.socket.recv())

        assert (error["type"], error["status"], error["error"]["code"]) == ("error", status, code)
        assert "None" not in error["error"]["message"]
        assert "stream_id" not in error
        assert said(await client.turn(input="still here")) == '["still here"]'


@pytest.mark.parametrize("wrong", ["nonsense", "{}", '{"type":"response.create","input":5,"stream_id":"b"}'])
async def test_a_bad_frame_is_answered_in_its_turn_and_not_between_another_s_events(wrong: str) -> None:
    release = asyncio.Event()

    async def slow(turn: Turn) -> AsyncIterator[str]:
        yield "a "
        await release.wait()
        yield "b"

    async with serving(slow) as url, connected(url) as client:
        await client.send(input="a", stream_id="a")
        await client.socket.send(wrong)
        await client.socket.send('{"type":"response.steer"}')
        events = await client.receive()
        release.set()
        events += await client.receive()
        error = json.loads(await client.socket.recv())

    assert events.pop([event["type"] for event in events].index("response.steer.failed"))
    assert {event["stream_id"] for event in events} == {"a"}
    assert events[-1]["type"] == "response.completed"
    assert (error["type"], error["status"]) == ("error", 400)
    assert error.get("stream_id") == ("b" if "stream_id" in wrong else None)


async def test_steering_is_answered_with_its_failure_while_a_turn_runs() -> None:
    release = asyncio.Event()

    class Program:
        name = "p"

        async def check(self, turn: Turn, owner: str) -> None: ...

        async def run(self, current: Any) -> AsyncIterator[list[Step]]:
            await release.wait()
            yield [Text("done")]

        def close(self) -> None: ...

    async with serving(Program()) as url, connected(url) as client:
        await client.send(input="a")
        await client.socket.send('{"type":"response.steer","stream_id":"s"}')
        while (event := json.loads(await client.socket.recv()))["type"] != "response.steer.failed":
            assert event["type"] in ("response.created", "response.in_progress")
        release.set()
        terminal = (await client.receive())[-1]

    assert event["stream_id"] == "s"
    assert said(terminal) == "done"


async def test_more_frames_than_the_queue_holds_are_refused_in_words() -> None:
    async def slow(turn: Turn) -> str:
        await asyncio.sleep(0.2)
        return "x"

    async with serving(slow) as url, connected(url) as client:
        for _ in range(shell.QUEUE + 3):
            await client.send(input="a")
        events = []
        while not any(event.get("error") for event in events):
            events.append(json.loads(await client.socket.recv()))

    assert events[-1]["status"] == 429
    assert events[-1]["error"]["code"] == "server_busy"


async def test_an_hour_old_socket_says_so_between_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "LIFETIME", -1)
    async with serving(echo) as url, connected(url) as client:
        error = await client.turn(input="a")

        assert error["error"]["code"] == "websocket_connection_limit_reached"
        with pytest.raises(websockets.ConnectionClosed):
            await client.socket.recv()


@pytest.mark.parametrize(
    ("settings", "headers", "status"),
    [
        ({"websocket": False}, {}, 426),
        ({"api_keys": ("k",)}, {}, 401),
        ({}, {"origin": "https://evil.example"}, 403),
        ({}, {"host": "evil.example"}, 403),
    ],
)
async def test_a_refused_upgrade_says_why(settings: dict[str, Any], headers: dict[str, str], status: int) -> None:
    async with serving(echo, **settings) as url:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with websockets.connect(address(url), additional_headers=headers):
                pass

    assert refused.value.response.status_code == status
    oracle.check_error(json.loads(refused.value.response.body))


async def test_frames_are_not_compressed_whatever_the_client_offers() -> None:
    """A few kilobytes would become gigabytes, and each fragment of them would be kept until the last one."""
    async with serving(echo) as url, connected(url, compression="deflate") as client:
        assert client.socket.protocol.extensions == []
        assert said(await client.turn(input="x" * 5000)) == json.dumps(["x" * 5000])


@pytest.mark.parametrize("path", ["/v1/nowhere", "/health", "/v1/responses/resp_x", "//v1/responses", "/%ff"])
async def test_there_is_no_socket_elsewhere(path: str) -> None:
    async with serving(echo) as url:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with websockets.connect(address(url, path)):
                pass

    assert refused.value.response.status_code == 404
    oracle.check_error(json.loads(refused.value.response.body))


async def test_the_sdk_connects_and_goes_on_by_id() -> None:
    async with serving(echo) as url:
        client = client_of(url)
        async with client.responses.connect() as socket:
            await socket.response.create(model="m", input="a", store=False)
            first = [event async for event in _until_end(socket)][-1]
            await socket.response.create(model="m", input="b", store=False, previous_response_id=first.response.id)
            second = [event async for event in _until_end(socket)][-1]

    assert second.response.output_text == json.dumps(["a", '["a"]', "b"])


async def _until_end(socket: Any) -> AsyncIterator[Any]:
    async for event in socket:
        yield event
        if event.type in ENDS:
            return


async def test_leaving_ends_the_run_and_many_cut_sockets_leave_nothing() -> None:
    async def slow(turn: Turn) -> AsyncIterator[str]:
        for i in range(80):
            yield f"{i} "
            await asyncio.sleep(0.002)

    app = build_app(slow)
    service = app.state.service
    async with running(app) as url:
        tasks = len(asyncio.all_tasks())
        dice = random.Random(7)

        async def one(i: int) -> None:
            async with connected(url) as client:
                for turn in range(2):
                    await client.send(input=f"{i}.{turn}", store=i % 3 == 0)
                    for _ in range(dice.randrange(1, 60)):
                        event = json.loads(await client.socket.recv())
                        assert event["type"] != "error"
                    if i % 2:
                        return
                    while event["type"] not in ENDS:
                        event = json.loads(await client.socket.recv())

        for start in range(0, 200, 40):
            await asyncio.gather(*(one(i) for i in range(start, start + 40)))
        while len(service.runs) or len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110  # counted, not signalled
            await asyncio.sleep(0.01)

        stored = [await service.store.get("", key[1]) for key in list(service.store._entries)]
        assert all(record and record.terminal for record in stored)
        assert service.store.segments == len(service.store)
