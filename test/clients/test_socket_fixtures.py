"""Every WebSocket request of a real client, with its earlier turns played on the same socket."""

import json
from typing import Any

import pytest
import websockets

from mellea_responses.program.user import UserProgram
from mellea_responses.turn import Turn
from support import oracle
from support.clients import DATA, Fixture, Speaker, load, rename, steps
from support.obedient import SENTENCE, answer
from support.recogniser import recognise
from support.serving import serving

FIXTURES = {fixture.name: fixture for fixture in load() if fixture.transport == "ws"}


class Socket:
    """One connection of a client to a program that says what a seed tells it to."""

    def __init__(self, socket: websockets.ClientConnection, speaker: Speaker) -> None:
        self._socket, self._speaker = socket, speaker

    async def turn(self, frame: Any) -> dict[str, Any]:
        """Sends a frame; gives the terminal event of a stream that keeps every rule."""
        await self._socket.send(json.dumps(frame))
        events = []
        while not events or events[-1]["type"] not in ("response.completed", "response.failed", "response.incomplete"):
            events.append(json.loads(await self._socket.recv()))
            assert "status" not in events[-1], events[-1]
        recognise(events)
        for event in events:
            oracle.check_event(event)
        return events[-1]

    async def plant(self, fixture: Fixture) -> dict[str, str]:
        """Plays the earlier turns; gives the ids of this server for those of the fixture."""
        names: dict[str, str] = {}
        for seed in fixture.seed:
            frame = {
                "type": "response.create",
                "input": rename(seed["input"], names),
                "store": seed.get("store"),
                "previous_response_id": rename(seed.get("previous_response_id"), names),
                "tools": fixture.body.get("tools"),
                "generate": False if not seed["output"] else None,
            }
            self._speaker.script = list(steps(seed["output"]))
            made = (await self.turn(frame))["response"]
            names[seed["response_id"]] = made["id"]
            names |= {old["id"]: new["id"] for old, new in zip(seed["output"], made["output"], strict=True)}
        self._speaker.script = None
        return names


@pytest.mark.parametrize("name", FIXTURES)
async def test_a_client_is_answered_on_its_socket(name: str) -> None:
    fixture, speaker = FIXTURES[name], Speaker(answer)
    async with (
        serving(UserProgram(serve=speaker.serve)) as url,
        websockets.connect(url.replace("http", "ws") + fixture.path) as connection,
    ):
        socket = Socket(connection, speaker)
        names = await socket.plant(fixture)
        before = len(speaker.turns)
        frame = rename(fixture.body, names)
        terminal = await socket.turn(frame)
        turns = speaker.turns[before:]

    assert terminal["type"] == "response.completed"
    if frame.get("generate") is False:
        assert terminal["response"]["output"] == []
        assert not turns
    else:
        assert terminal["response"]["output"][-1]["content"][0]["text"] == SENTENCE
        assert_whole(turns[0], fixture)
    if "stream_id" in frame:
        assert terminal["stream_id"] == frame["stream_id"]
    assert terminal["response"]["previous_response_id"] == frame.get("previous_response_id")


def assert_whole(turn: Turn, fixture: Fixture) -> None:
    """Every earlier item and every new one reached the program."""
    sent = sum(1 if isinstance(seed["input"], str) else len(seed["input"]) for seed in fixture.seed)
    said = sum(len(seed["output"]) for seed in fixture.seed)
    asked = 1 if isinstance(fixture.body["input"], str) else len(fixture.body["input"])
    assert len(turn.items) == sent + said + asked


def test_the_folder_holds_nine_requests_over_sockets() -> None:
    assert DATA.is_dir()
    assert len(FIXTURES) == 9
