"""Other people's clients, unmodified, against a scripted program of ours.

A driver in `test/clients/drive/` is a small program for one client: it is told what to do and where the server is, as
`DRIVER MODE/FEATURE=URL…`, does what a user of that client would write, and prints a line of JSON for each case with
what that user sees: `text` and, for a stream, `deltas`, or `error`. Here is everything else: what the program says for
each feature, what the user must see, and how many requests the client may need for it.
"""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mellea_responses.errors import InvalidRequest
from mellea_responses.turn import Call, CallArgs, CallEnd, Step, Text, Thought, Turn, Usage, current_run
from mellea_responses.wire.tools import FunctionTool
from support.serving import ROOT, build_app, running
from support.stand_in import Json, plain_message, text_of

DRIVERS = ROOT / "test" / "clients" / "drive"
DRIVE_SECONDS = 400  # for every case of one driver
KEPT = ("PATH", "LANG", "TMPDIR")


@dataclass(frozen=True)
class Heard:
    """What a program is given, as an author would look at it."""

    turn: Turn
    messages: list[Json]

    def outputs(self) -> list[str]:
        """The words of the tools."""
        return [text_of(message) for message in self.messages if message["role"] == "tool"]

    def thoughts(self) -> list[str]:
        return [message["reasoning"] for message in self.messages if message.get("reasoning")]

    def said(self, role: str = "user") -> list[str]:
        return [text_of(message) for message in self.messages if message["role"] == role]

    def images(self) -> int:
        parts = [
            part for message in self.messages if isinstance(message["content"], list) for part in message["content"]
        ]
        return sum(part["type"] in ("image_url", "input_image") for part in parts)


Moves = Sequence[Step | Exception]
Answer = Moves | Callable[[Heard], Moves]


class Scripted:
    """A program that gives one answer after the other; the last one again when asked more often."""

    def __init__(self, *answers: Answer, check: Callable[[Turn], None] | None = None) -> None:
        self.heard: list[Heard] = []
        self.cancelled = 0
        self._answers = answers
        self._check = check

    def check(self, turn: Turn) -> None:
        if self._check is not None:
            self._check(turn)

    def serve(self, input: Any, turn: Turn) -> Iterator[Step]:
        heard = Heard(turn, [plain_message(message) for message in input])
        self.heard.append(heard)
        answer = self._answers[min(len(self.heard), len(self._answers)) - 1]
        run = current_run.get()
        try:
            for move in answer(heard) if callable(answer) else answer:
                if isinstance(move, Exception):
                    raise move
                yield move
        finally:
            self.cancelled += run is not None and run.cancelled.is_set()


def call(name: str, key: str = "1", namespace: str | None = None, **arguments: Any) -> list[Step]:
    """A whole call, its arguments in two pieces."""
    written = json.dumps(arguments)
    half = len(written) // 2
    return [Call(key, name, namespace), CallArgs(key, written[:half]), CallArgs(key, written[half:]), CallEnd(key)]


def custom_call(name: str, text: str, key: str = "1") -> list[Step]:
    """A call of a custom tool."""
    return [Call(key, name, kind="custom"), CallArgs(key, text), CallEnd(key)]


COUNTS = Usage(20, 5)


@dataclass(frozen=True)
class Feature:
    """One thing that a client can do.

    Args:
        script: What the program says, answer by answer.
        sees: What the user must read in the end; for a failure, what their error must hold.
        requests: How many turns the client may ask for.
        fails: The user is to see an error.
        check: The program's own `check(turn)`.
        cut: The connection breaks after the first words.
        pieces: How many pieces of text a streaming client must get.
        wants: A last look at what the program heard.
    """

    script: tuple[Answer, ...]
    sees: str
    requests: int = 1
    fails: bool = False
    check: Callable[[Turn], None] | None = None
    cut: bool = False
    pieces: int = 1
    wants: Callable[[list[Heard]], bool] = lambda heard: True


FIRST_WORD = b'"Hello "'


def _plain(heard: Heard) -> Moves:
    return [Text("Hello "), Text("from "), Text("the program."), COUNTS]


def _tell_outputs(heard: Heard) -> Moves:
    return [Text("I heard: "), Text(", ".join(heard.outputs()) + "."), COUNTS]


def _ask_twice(heard: Heard) -> Moves:
    """Looks at the last message to know whose turn it is, as programs do."""
    answered = heard.messages[-1]["role"] == "tool"
    if not heard.turn.tools or (answered and len(heard.outputs()) == 2):
        return _tell_outputs(heard)
    return [*call("get_weather", city="Wien" if answered else "Graz"), COUNTS]


def _tell_thoughts(heard: Heard) -> Moves:
    return [Text(f"I thought: {' '.join(heard.thoughts())} I heard: {', '.join(heard.outputs())}."), COUNTS]


def _tell_said(heard: Heard) -> Moves:
    return [Text(f"You said: {' '.join(heard.said())}"), COUNTS]


def _tell_images(heard: Heard) -> Moves:
    return [Text(f"I see {heard.images()} image."), COUNTS]


def _tell_city(heard: Heard) -> Moves:
    """As text in the form asked for, or as a call of the one tool that stands for it."""
    names = [tool.name for tool in heard.turn.tools if isinstance(tool, FunctionTool)]
    if names:
        return [*call(names[0], city="Graz", degrees=21), COUNTS]
    return [Text(CITY[:9]), Text(CITY[9:]), COUNTS]


def refuse(turn: Turn) -> None:
    raise InvalidRequest("Say please, then ask again.", param="input", code="rude")


WEATHER = {"city": "Graz"}
CITY = '{"city":"Graz","degrees":21}'
FEATURES: Mapping[str, Feature] = {
    "plain": Feature((_plain,), "Hello from the program."),
    "stream": Feature((_plain,), "Hello from the program.", pieces=3),
    "tools": Feature((_ask_twice,), "I heard: Graz is sunny, Wien is sunny.", requests=3),
    "parallel": Feature(
        ((*call("get_weather", city="Graz"), *call("get_weather", "2", city="Wien"), COUNTS), _tell_outputs),
        "I heard: Graz is sunny, Wien is sunny.",
        requests=2,
    ),
    "structured": Feature(
        (_tell_city,),
        "Graz has 21 degrees.",
        wants=lambda heard: heard[0].turn.format.kind == "json_schema" or bool(heard[0].turn.tools),
    ),
    "reasoning": Feature(
        ((Thought("They ask "), Thought("about Graz."), *call("get_weather", city="Graz"), COUNTS), _tell_thoughts),
        "I thought: They ask about Graz. I heard: Graz is sunny.",
        requests=2,
    ),
    "images": Feature((_tell_images,), "I see 1 image."),
    "chain": Feature(
        ((Text("Noted."), COUNTS), _tell_said),
        "You said: One. Two.",
        requests=2,
        wants=lambda heard: len(heard[1].turn.input) == 1 and heard[1].turn.parent is not None,
    ),
    "conversation": Feature(
        ((Text("Noted."), COUNTS), _tell_said),
        "You said: One. Two.",
        requests=2,
    ),
    "error": Feature((_plain,), "Say please, then ask again.", fails=True, check=refuse),
    "failed": Feature(
        ((Text("Once upon "), InvalidRequest("Say please, then ask again.", code="rude")),),
        "Say please, then ask again.",
        fails=True,
    ),
    "cut": Feature((_plain,), "", fails=True, cut=True),
}


# ---------------------------------------------------------------- the server


class Door:
    """Stands before the app: counts what comes in, and can break the connection after the first words."""

    def __init__(self, app: Any, cut: bool = False) -> None:
        self.app = app
        self.cut = cut
        self.requests: list[str] = []
        self.bodies: list[Json] = []
        self.sockets = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            self.sockets += 1
        else:
            self.requests.append(f"{scope['method']} {scope['path']}")
        collected = bytearray()

        async def heard() -> Any:
            message = await receive()
            if message["type"] == "websocket.receive":
                self._note(f"FRAME {scope['path']}", message.get("text") or message.get("bytes") or "")
            elif message["type"] == "http.request":
                collected.extend(message.get("body", b""))
                if not message.get("more_body") and collected:
                    self._note("", bytes(collected))
            return message

        async def said(message: Any) -> None:
            piece = message.get("body") or (message.get("text") or "").encode()
            words = piece.find(FIRST_WORD) if self.cut else -1
            if words < 0:
                await send(message)
                return
            if scope["type"] == "websocket":
                await send(message)
                await send({"type": "websocket.close", "code": 1011})
            else:
                await send({**message, "body": piece[: piece.index(b"\n\n", words) + 2]})
            raise OSError("cut")

        await self.app(scope, heard, said)

    def _note(self, name: str, raw: str | bytes) -> None:
        if name:
            self.requests.append(name)
        with suppress(ValueError):
            self.bodies.append(json.loads(raw))

    @property
    def turns(self) -> int:
        """Requests for an answer, over HTTP or a socket."""
        asked = ("/responses", "/chat/completions")
        return sum(one.endswith(asked) and one.split()[0] in ("POST", "FRAME") for one in self.requests)


@dataclass
class Served:
    """A server with a scripted program behind a door."""

    url: str
    door: Door
    program: Scripted


@asynccontextmanager
async def scripted(
    *answers: Answer, check: Callable[[Turn], None] | None = None, cut: bool = False, **settings: Any
) -> AsyncIterator[Served]:
    """A server on a free port whose program says `answers`."""
    program = Scripted(*answers, check=check)
    door = Door(build_app(_Program(program), **settings), cut)
    async with running(door) as url:  # type: ignore[arg-type]  # any ASGI application
        yield Served(url, door, program)


class _Program:
    """What `build_app` takes: a function with a `check` beside it."""

    def __new__(cls, program: Scripted) -> Any:
        def serve(input: Any, turn: Turn) -> Iterator[Step]:
            yield from program.serve(input, turn)

        serve.check = program.check  # type: ignore[attr-defined]  # a function takes attributes
        return serve


# ---------------------------------------------------------------- the client


@dataclass(frozen=True)
class Outcome:
    """How a client's process ended."""

    code: int
    output: str
    errors: str


async def run(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None, seconds: float = 90
) -> Outcome:
    """A client's process, with a bare environment: nothing of this machine's settings reaches it."""
    kept = {key: os.environ[key] for key in KEPT if key in os.environ}
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        env={**kept, "OPENAI_API_KEY": "unused", "NO_COLOR": "1", **(env or {})},
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    except TimeoutError:
        raise AssertionError(f"{command[0]} did not end within {seconds} s") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own group: it may have started helpers
    return Outcome(process.returncode or 0, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


@dataclass(frozen=True)
class Client:
    """One way to use one client.

    Args:
        name: How the table calls it.
        environment: What `environments.py` installs for it.
        driver: The file in `test/clients/drive/`.
        mode: The driver's first argument: which of its ways.
        cannot: What the client itself does not do, and why; `-` alone where the feature is not the client's affair.
        requests: How many turns it may ask for where that differs from the feature's own number.
    """

    name: str
    environment: str
    driver: str
    mode: str
    cannot: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)

    @property
    def features(self) -> list[str]:
        return [name for name in FEATURES if name not in self.cannot]


Tell = Callable[[str, str, str | None], None]


@dataclass(frozen=True)
class Drive:
    """How one feature went."""

    seen: Json
    served: Served
    outcome: Outcome

    def judge(self, feature: Feature, requests: int) -> None:
        """What the user sees is what the program said, and nobody asked more often than it takes."""
        seen, door = self.seen, self.served.door
        told = f"\nrequests: {door.requests}\nsaw: {seen}\n{self.outcome.output[-3000:]}\n{self.outcome.errors[-3000:]}"
        assert 0 < door.turns <= requests, told
        if feature.fails:
            assert seen.get("error"), told
            assert feature.sees in seen["error"], told
        else:
            assert seen.get("text") == feature.sees, told
            assert feature.wants(self.served.program.heard), told
        assert feature.fails or seen.get("deltas", feature.pieces) >= feature.pieces, told


async def drive(cases: Sequence[tuple[Client, str]], folder: Path, program: str) -> dict[tuple[str, str], Drive]:
    """What clients of one driver are asked to do, by one process against a server for each case."""
    driver = cases[0][0].driver
    async with AsyncExitStack() as stack:
        served: dict[tuple[str, str], Served] = {}
        arguments: list[str] = []
        for client, feature in cases:
            asked = FEATURES[feature]
            one = await stack.enter_async_context(scripted(*asked.script, check=asked.check, cut=asked.cut))
            served[client.mode, feature] = one
            arguments.append(f"{client.mode}/{feature}={one.url}")
        script = DRIVERS / driver
        if script.suffix == ".mjs":  # a module finds its packages from where it lies
            for file in (script, DRIVERS / "common.mjs"):
                shutil.copy(file, folder)
            script = folder / script.name
        outcome = await run([program, script, *arguments], cwd=folder, seconds=DRIVE_SECONDS)
    seen = {line["case"]: line for line in _json_lines(outcome.output) if "case" in line}
    return {case: Drive(seen.get("/".join(case), {}), one, outcome) for case, one in served.items()}


def _json_lines(output: str) -> Iterator[Json]:
    for line in output.splitlines():
        with suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                yield found
