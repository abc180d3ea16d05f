"""Requests of real clients with one field broken: refused with its place or answered, and nothing stays behind.

Each client's requests go to a server of their own. Plain runs take a fixed sample; `-m slow` sends every mutation.
"""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest

from mellea_responses.http.app import create_app
from mellea_responses.program.user import UserProgram
from mellea_responses.service import Service
from mellea_responses.settings import Settings
from mellea_responses.store import MemoryStore
from support import oracle
from support.clients import Fixture, Speaker, load, plant
from support.mutations import Mutation, mutations, names_a_place, show
from support.obedient import answer
from support.raw import Answer, Request, ask, delete
from support.recogniser import recognise_frames
from support.serving import running

SAMPLE = 40
"""Mutations of one client in a plain run."""
HANG = 30.0
"""Seconds after which an answer is taken for a hang, on any machine."""

ABOUT_THE_WHOLE = frozenset({"invalid_json", "cannot_count_tokens"})
"""What is wrong with no field in particular."""
WORDS = ("null", "-2", "1e3", "9" * 30, "x" * 3000, "\0", "٣", "[1]", " true", "NaN")
"""What stands in a query where something else should."""

FIXTURES = [fixture for fixture in load() if fixture.transport == "http"]
CLIENTS = {name: list(group) for name, group in groupby(FIXTURES, key=lambda fixture: fixture.name.split("/")[0])}


@dataclass(frozen=True)
class Counts:
    """What may not grow: runs, segments and bytes of the store, tasks, threads at work."""

    runs: int
    segments: int
    bytes: int
    tasks: int
    busy: int


@dataclass
class Bench:
    """A server with a program that does as it is asked, and what it has been made to keep."""

    url: str
    service: Service
    speaker: Speaker
    calls: int = 0

    def counts(self) -> Counts:
        store, program = self.service.store, self.service.program
        assert isinstance(store, MemoryStore)
        assert isinstance(program, UserProgram)
        return Counts(
            runs=len(self.service.runs),
            segments=store.segments,
            bytes=store.bytes,
            tasks=len(asyncio.all_tasks()),
            busy=program._pool.busy + program._checks.busy,
        )

    async def quiet(self, tasks: int | None = None) -> Counts:
        """The counts once nothing works any more, or after a while; `tasks` is how many there should be then."""
        for _ in range(200):
            counts = self.counts()
            if not counts.runs and not counts.busy and tasks in (None, counts.tasks):
                break
            await asyncio.sleep(0.02)
        return self.counts()

    def note(self, answer: Answer) -> None:
        """Counts the calls that an answer makes; their outputs may still come, so they are remembered on purpose."""
        response = answer.response if answer.is_stream else answer.json
        if answer.status == 200 and response.get("object") == "response":
            self.calls += sum(item["type"].endswith("_call") for item in response["output"])

    async def forget(self, *, but: int) -> None:
        """Deletes every response made, but the first few."""
        for response_id in self.speaker.ids[but:]:
            assert (await delete(self.url, f"/v1/responses/{response_id}")).status in (200, 404)


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    speaker, settings = Speaker(answer), Settings()
    app = create_app(UserProgram(serve=speaker.serve, settings=settings), settings)
    async with running(app) as url:
        yield Bench(url, app.state.service, speaker)


@dataclass(frozen=True)
class Broken:
    """A request with one thing wrong; its body is made when it is sent."""

    fixture: Fixture
    path: str
    mutation: Mutation | None = None

    def __str__(self) -> str:
        return f"{self.fixture.name}: {self.mutation or self.path[:80]}"

    @property
    def shape(self) -> tuple[str, ...]:
        """What it has in common with the same break elsewhere in a list; one of these is enough."""
        if self.mutation is None:
            return (self.fixture.name, self.path)
        field = re.sub(r"\[\d+\]", "[]", show(self.mutation.path))
        return (self.mutation.kind, re.sub(r"(properties|metadata)\.[^.\[]+", r"\1.", field))

    @property
    def request(self) -> Request:
        content = self.mutation.content if self.mutation else self.fixture.request.content
        return Request(self.fixture.method, self.path, content, self.fixture.headers)


def breaks(fixture: Fixture) -> Iterator[Broken]:
    """Every mutation of a request: of its body and of its address."""
    if isinstance(fixture.body, dict):
        for mutation in mutations(fixture.body):
            yield Broken(fixture, fixture.path, mutation)
    for path in addresses(fixture.path):
        yield Broken(fixture, path)


def addresses(path: str) -> Iterator[str]:
    """The address with one piece of its path or query dropped, emptied, doubled, retyped or enlarged."""
    parts = urlsplit(path)
    pieces = parts.path.split("/")
    for i in range(1, len(pieces)):
        for other in ("", "%00", "..", "x" * 3000, quote(pieces[i] + "/"), "%F0%9F%8C%8A", pieces[i] * 2):
            yield "/".join([*pieces[:i], other, *pieces[i + 1 :]]) + (f"?{parts.query}" if parts.query else "")
    query = parse_qsl(parts.query, keep_blank_values=True)
    for i, (key, value) in enumerate(query):
        for instead in (
            [],
            [(key, "")],
            [(key, value), (key, value)],
            *(
                [(key, other)]
                for other in ("null", "-2", "1e3", "9" * 30, "x" * 3000, "\0", "٣", "[1]", " true", "NaN")
            ),
        ):
            yield f"{parts.path}?{urlencode([*query[:i], *instead, *query[i + 1 :]])}"


def complaint(request: Request, answer: Answer) -> str | None:
    """What is wrong with the answer to a broken request."""
    try:
        judge(request, answer)
    except AssertionError as exc:
        return str(exc) or repr(exc)
    return None


def judge(request: Request, answer: Answer) -> None:
    body = answer.body.decode()[:300]
    assert answer.status < 500, f"{answer.status} {body}"
    if answer.is_stream and "starting_after" not in request.path:
        recognise_frames(answer.frames)
    if answer.is_stream:
        assert answer.response["status"] == "completed", answer.response["error"]
    elif answer.status >= 400:
        oracle.check_error(answer.json)
        error = answer.error
        if answer.status == 400 and error["code"] not in ABOUT_THE_WHOLE and request.content:
            sent = loads(request.content)
            assert error["param"], f"no place: {body}"
            assert sent is None or names_a_place(error["param"], sent), f"no such place: {body}"
    else:
        assert answer.status == 200


def loads(content: bytes) -> Any:
    """The body again; None when it is nested more deeply than Python reads."""
    try:
        return json.loads(content)
    except RecursionError:
        return None


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_broken_field_is_refused_with_its_place_or_answered(client: str) -> None:
    await send(client, SAMPLE)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("client", CLIENTS)
async def test_every_broken_field_is_refused_with_its_place_or_answered(client: str) -> None:
    await send(client, None)


async def send(client: str, sample: int | None) -> None:
    """Sends a client's broken requests to one server and looks what they left behind."""
    complaints: list[str] = []
    async with bench() as server:
        planted = [await plant(server.url, server.speaker, fixture) for fixture in CLIENTS[client]]
        before, live, made = await server.quiet(), len(server.service.live), len(server.speaker.ids)
        requests = list({broken.shape: broken for fixture in planted for broken in breaks(fixture)}.values())
        if sample is not None:
            requests = random.Random(client).sample(requests, min(sample, len(requests)))
        for broken in requests:
            request = broken.request
            async with asyncio.timeout(HANG):
                answer = await ask(server.url, request)
            if request.method == "POST":
                server.note(answer)
            if what := complaint(request, answer):
                complaints.append(f"{broken}: {what}")
        await server.forget(but=made)
        after = await server.quiet(before.tasks)
        grown = len(server.service.live) - live

    assert not complaints, f"{len(complaints)} of {len(requests)}:\n" + "\n".join(complaints[:40])
    assert after == before
    assert grown == server.calls
