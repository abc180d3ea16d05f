"""Requests of real clients, and how to put a server into the state that they were sent in.

`test/clients/data/<client>/*.json` holds one request a file. `seed` lists the earlier turns that the server must hold:
they are played over HTTP by a program that says what the seed says, and the ids in the request are renamed to those
that the server gave out.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mellea_responses.turn import Call, CallArgs, CallEnd, ItemDone, Step, Text, Thought, Turn, current_run
from support.raw import Answer, Request, get, post
from support.stand_in import Json

DATA = Path(__file__).parents[1] / "clients" / "data"


@dataclass(frozen=True)
class Fixture:
    """One request as a client sent it."""

    name: str
    transport: str
    path: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    seed: tuple[Json, ...] = ()

    @property
    def request(self) -> Request:
        """The request as it goes out."""
        content = b"" if self.body is None else json.dumps(self.body).encode()
        return Request(self.method, self.path, content, self.headers)

    @property
    def streams(self) -> bool:
        return isinstance(self.body, dict) and self.body.get("stream") is True


def load() -> list[Fixture]:
    """Every fixture, by name."""
    return [_read(path) for path in sorted(DATA.glob("*/*.json"))]


def _read(path: Path) -> Fixture:
    raw = json.loads(path.read_bytes())
    return Fixture(
        name=f"{path.parent.name}/{path.stem}",
        transport=raw["transport"],
        path=raw["path"],
        method=raw.get("method", "POST"),
        headers=raw.get("headers", {}),
        body=raw.get("body"),
        seed=tuple(raw.get("seed", ())),
    )


class Speaker:
    """A program whose next words can be set; without any it does as it is asked, see `support.obedient`."""

    def __init__(self, answer: Callable[[Turn], Iterator[Step]]) -> None:
        self.script: list[Step] | None = None
        self.turns: list[Turn] = []
        self.ids: list[str] = []  # of every response it has spoken for
        self._answer = answer

    def serve(self, input: Any, turn: Turn) -> Iterator[Step]:
        run = current_run.get()
        assert run is not None
        self.turns.append(turn)
        self.ids.append(run.response_id)
        yield from self._answer(turn) if self.script is None else self.script


async def plant(url: str, speaker: Speaker, fixture: Fixture) -> Fixture:
    """Plays the earlier turns; gives the request with the ids of this server."""
    names: dict[str, str] = {}
    for conversation in re.findall(r"conv_[0-9]+", f"{fixture.path} {json.dumps(fixture.body)}"):
        names[conversation] = (await post(url, {}, "/v1/conversations")).json["id"]
    for turn in fixture.seed:
        body = {"input": rename(turn["input"], names), "background": turn.get("background")}
        if "previous_response_id" in turn:
            body["previous_response_id"] = names[turn["previous_response_id"]]
        elif called := list(_calls_before(turn)):
            await _play(url, speaker, {"input": "Call."}, called)
        names |= _given(turn, await _play(url, speaker, body, turn["output"]))
    path = fixture.path
    for old, new in names.items():
        path = path.replace(f"/{old}", f"/{new}")
    return replace(fixture, body=rename(fixture.body, names), path=path, seed=())


async def _play(url: str, speaker: Speaker, body: Json, output: list[Json]) -> Answer:
    """One turn that is asked with `body` and answered with `output`."""
    names = {item["name"] for item in output if item["type"] == "function_call"}
    speaker.script = list(steps(output))
    try:
        answer = await post(url, {**body, "tools": [{"type": "function", "name": name} for name in sorted(names)]})
        assert answer.status == 200, f"an earlier turn was refused: {answer.body.decode()[:500]}"
        return await _ended(url, answer)
    finally:
        speaker.script = None


async def _ended(url: str, answer: Answer) -> Answer:
    """The answer once its response is over; one in the background is asked for again."""
    while answer.json["status"] in ("queued", "in_progress"):
        await asyncio.sleep(0.01)
        answer = await get(url, f"/v1/responses/{answer.json['id']}")
    return answer


def _calls_before(turn: Json) -> Iterator[Json]:
    """Calls that the turn answers and that were made before everything that the seed tells."""
    items = turn["input"] if isinstance(turn["input"], list) else []
    made = {item.get("call_id") for item in items if item.get("type") == "function_call"}
    for item in items:
        if item.get("type") == "function_call_output" and item["call_id"] not in made:
            yield {"type": "function_call", "call_id": item["call_id"], "name": "earlier", "arguments": "{}"}


def _given(turn: Json, answer: Answer) -> dict[str, str]:
    made = answer.json
    assert [item["type"] for item in made["output"]] == [item["type"] for item in turn["output"]]
    pairs = zip(turn["output"], made["output"], strict=True)
    return {turn["response_id"]: made["id"]} | {old["id"]: new["id"] for old, new in pairs}


def rename(value: Any, names: Mapping[str, str]) -> Any:
    """A copy in which every string that is an old id is the new one."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [rename(one, names) for one in value]
    if isinstance(value, dict):
        return {key: rename(one, names) for key, one in value.items()}
    return deepcopy(value)


def steps(output: list[Json]) -> Iterator[Step]:
    """What a program says to give this output; call ids are the output's own."""
    for number, item in enumerate(output):
        match item["type"]:
            case "message":
                yield from (Text(part["text"], phase=item.get("phase")) for part in item["content"])
            case "reasoning":
                yield Thought(" ".join(part["text"] for part in item["summary"]) or "Hm.")
            case "function_call":
                yield Call(str(number), item["name"], call_id=item["call_id"])
                yield CallArgs(str(number), item["arguments"])
                yield CallEnd(str(number))
            case _:
                yield ItemDone(item)
