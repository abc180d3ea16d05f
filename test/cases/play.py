"""Plays a case: starts a server with the stand-in as its program, sends the turns in order, keeps what came back."""

import asyncio
import gzip
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from cases.model import ModelStandIn, is_model
from cases.policy import SETTINGS, SETUP
from cases.values import expand, fill

from support import raw
from support.raw import Answer, Request
from support.serving import Process, build_app, process, running
from support.stand_in import Json, Shape, StandIn

DATA = Path(__file__).parent / "data"
SCRIPTED = Path(__file__).parents[1] / "support" / "scripted.py"
AT_ONCE = 20
Outcome = Any  # an `Answer`, a list of outcomes for turns that start several, or None where nothing was asked


@dataclass
class Played:
    """What a case's checks may look at.

    Args:
        outcomes: One per turn, in order.
        program: The stand-in, with what it received. In another process it receives nothing here.
        log: What the server logged, in order.
        left_at: When the client dropped a connection.
        exit_after: Seconds from the signal to the end of the process.
        held: How many responses the store held after each request and each wait.
        entries: How many entries all tables of the server had together, at the start and after each wait.
    """

    case: Json
    shape: Shape
    program: StandIn | ModelStandIn
    url: str = ""
    app: Any = None
    outcomes: list[Outcome] = field(default_factory=list)
    saved: dict[str, Any] = field(default_factory=dict)
    log: list[logging.LogRecord] = field(default_factory=list)
    left_at: float = 0.0
    canary: list[Any] = field(default_factory=list)
    exit_after: float | None = None
    exit_status: int | None = None
    started: list[asyncio.Task[Outcome]] = field(default_factory=list)
    process: Process | None = None
    held: list[int] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)

    def count_held(self) -> None:
        if self.app is not None:
            self.held.append(len(self.app.state.service.store))

    def count_entries(self) -> None:
        if self.app is not None:
            self.entries.append(entries_of(self.app.state.service))

    @property
    def answers(self) -> list[Answer]:
        """Every answer, those of parallel and repeated turns in their order."""
        return list(_flat(self.outcomes))

    @property
    def one(self) -> Answer:
        (answer,) = self.answers
        return answer

    @property
    def responses(self) -> list[Json]:
        """The response objects of all answers that carry one."""
        return [answer.response for answer in self.answers if answer.status == 200 and _carries_response(answer)]


def entries_of(root: Any) -> int:
    """Entries of every table that can be reached from `root` through objects of this package."""
    seen: set[int] = set()
    waiting, count = [root], 0
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Mapping | list | set | deque):
            count += len(value)
            waiting += value.values() if isinstance(value, Mapping) else value
        elif type(value).__module__.startswith("mellea_responses"):
            slots = (getattr(value, name, None) for name in getattr(type(value), "__slots__", ()))
            waiting += [*slots, *getattr(value, "__dict__", {}).values()]
    return count


def _flat(outcomes: list[Outcome]) -> Any:
    for outcome in outcomes:
        if isinstance(outcome, list):
            yield from _flat(outcome)
        elif outcome is not None:
            yield outcome


def _carries_response(answer: Answer) -> bool:
    return answer.is_stream or (answer.body.startswith(b"{") and answer.json.get("object") == "response")


def load(path: Path) -> Json:
    case: Json = json.loads(path.read_text())
    return case


def turns_of(case: Json) -> list[Json]:
    """The turns of a case; a request alone is one turn."""
    request = case["request"]
    turns: list[Json] = request.get("turns", [request])
    return turns


def settings_of(case: Json) -> Json:
    """The settings for a case's `setup`, and ours where a policy of the server decides the outcome."""
    setup = case.get("setup", {})
    unknown = setup.keys() - SETUP.keys()
    if unknown:
        raise NotImplementedError(f"the runner has no settings for {sorted(unknown)}")
    chosen = {SETUP[name]: tuple(value) if isinstance(value, list) else value for name, value in setup.items()}
    return chosen | SETTINGS.get(case["id"], {})


def stand_in_for(script: Json, shape: Shape) -> StandIn | ModelStandIn:
    """Who plays the program: a `serve()`, or a model."""
    return ModelStandIn(script) if is_model(script) else StandIn(script, shape)


@asynccontextmanager
async def play(case: Json, shape: Shape, log: list[logging.LogRecord]) -> AsyncIterator[Played]:
    """The case played to its end, with its server still running for checks that ask again."""
    case = {**case, "program": expand(case.get("program", {}))}
    played = Played(case, shape, stand_in_for(case["program"], shape), log=log)
    async with AsyncExitStack() as stack:
        played.saved.update(await stack.enter_async_context(_surroundings(played)))
        await stack.enter_async_context(_server(played))
        for turn in turns_of(case):
            played.outcomes.append(await _play_turn(played, turn))
        yield played
        for task in played.started:
            task.cancel()
        await asyncio.gather(*played.started, return_exceptions=True)


@asynccontextmanager
async def _server(played: Played) -> AsyncIterator[None]:
    settings = settings_of(played.case)
    if "signal" in json.dumps(played.case["request"]):
        env = {"STAND_IN_SCRIPT": json.dumps(played.case["program"]), "STAND_IN_SHAPE": played.shape}
        async with process(SCRIPTED, env=env) as played.process:
            played.url = played.process.url
            yield
    else:
        played.app = build_app(played.program.serve, **settings)
        async with running(played.app) as played.url:
            played.count_entries()
            yield


@asynccontextmanager
async def _surroundings(played: Played) -> AsyncIterator[Json]:
    """A listener on loopback that nobody should call, under the names that cases use for it."""
    listener = await asyncio.start_server(lambda reader, writer: played.canary.append(writer), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield {"canary_port": port, "allowed_host": f"127.0.0.1:{port}"}
    finally:
        for writer in played.canary:
            writer.close()
        listener.close()


# ---------------------------------------------------------------- turns


async def _play_turn(played: Played, turn: Json) -> Outcome:
    outcome = await _play_kind(played, turn)
    if "save" in turn:
        played.saved[turn["save"]] = _worth_saving(outcome)
    return outcome


async def _play_kind(played: Played, turn: Json) -> Outcome:
    match turn:
        case {"wait_s": seconds}:
            await asyncio.sleep(seconds)
            played.count_held()
            played.count_entries()
            return await _play_turn(played, turn["then"]) if "then" in turn else None
        case {"parallel": together}:
            return await asyncio.gather(*(_play_turn(played, one) for one in together))
        case {"repeat": times, "of": again}:
            return await _repeat(played, turn, times, again)
        case {"start_only": started}:
            return await _start(played, started)
        case {"abort_after_events": count}:
            return await _leave(played, turn.get("of", turn), after_events=count)
        case {"abort_after_s": seconds}:
            return await _leave(played, turn.get("of", turn), after_seconds=seconds)
        case {"signal": name}:
            return await _signal(played, name)
        case {"method": _, "path": _}:
            return await raw.ask(played.url, request_of(turn, played.saved))
    raise NotImplementedError(f"the runner cannot play the turn {turn}")


async def _repeat(played: Played, turn: Json, times: int, again: Json) -> Outcome:
    """The first alone, since its answer may be wanted; the others some at a time, as they would come."""

    async def once() -> Outcome:
        outcome = await _play_turn(played, again)
        played.count_held()
        return outcome

    outcomes = [await once()]
    if "save_first" in turn:
        played.saved[turn["save_first"]] = _worth_saving(outcomes[0])
    while len(outcomes) < times:
        outcomes += await asyncio.gather(*(once() for _ in range(min(AT_ONCE, times - len(outcomes)))))
    return outcomes


async def _start(played: Played, turn: Json) -> Answer:
    """Starts a request and goes on when its answer has begun, so that the next turn finds it running."""
    begun: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def whole() -> Answer:
        async with raw.exchange(played.url, request_of(turn, played.saved)) as opened:
            begun.set_result(opened.answer)
            return await opened.finish()

    played.started.append(asyncio.create_task(whole()))
    return await begun


async def _leave(
    played: Played, turn: Json, *, after_events: int | None = None, after_seconds: float | None = None
) -> Answer:
    request = request_of(turn, played.saved)
    async with raw.exchange(played.url, request) as opened:
        try:
            async with asyncio.timeout(after_seconds):
                await _read_events(opened, after_events)
        except TimeoutError:
            pass
    played.left_at = monotonic()
    return opened.answer


async def _read_events(opened: raw.Exchange, count: int | None) -> None:
    seen = 0
    async for frame in opened.frames():
        seen += frame.is_event
        if count is not None and seen >= count:
            return


async def _signal(played: Played, name: str) -> None:
    assert played.process is not None
    sent = monotonic()
    played.process.signal(name)
    played.exit_status = await played.process.wait(10)
    played.exit_after = monotonic() - sent
    await asyncio.gather(*played.started)


# ---------------------------------------------------------------- requests


def request_of(turn: Json, saved: Mapping[str, Any]) -> Request:
    """The bytes that a turn stands for."""
    headers = {name.lower(): value for name, value in turn.get("headers", {}).items()}
    content = b""
    if "body" in turn:
        headers.setdefault("content-type", "application/json")
        content = json.dumps(fill(expand(turn["body"]), saved)).encode()
    elif "raw_body" in turn:
        content = expand(turn["raw_body"]).encode()
    elif "raw_body_gzip" in turn:
        content = gzip.compress(expand(turn["raw_body_gzip"]).encode())
    return Request(turn["method"], fill(turn["path"], saved), content, headers)


def _worth_saving(outcome: Outcome) -> Any:
    """The response object: a stream's closing one, or its first when the stream was dropped."""
    if not isinstance(outcome, Answer):
        return outcome
    return outcome.response if outcome.is_stream else outcome.json
