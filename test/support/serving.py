"""A real server on a free loopback port, in this event loop or in a process of its own.

Timing, joined writes and disconnects only show on a socket: test clients buffer the whole body.
"""

import asyncio
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from litestar import Litestar

from mellea_responses.http.app import create_app
from mellea_responses.http.connections import protocols
from mellea_responses.program.user import UserProgram
from mellea_responses.settings import Settings
from mellea_responses.telemetry import Name

ROOT = Path(__file__).parents[2]


def build_app(program: Any, **settings: Any) -> Litestar:
    """The app over a program, or over a plain `serve` function with an optional `check`."""
    chosen = Settings(**settings)
    if not hasattr(program, "run"):
        program = UserProgram(serve=program, check=getattr(program, "check", None), settings=chosen)
    return create_app(program, chosen)


@asynccontextmanager
async def running(app: Litestar) -> AsyncIterator[str]:
    """The address of a server for `app`; leaving the block stops it and waits until it has stopped."""
    sock = socket.create_server(("127.0.0.1", 0))
    service = getattr(getattr(app, "state", None), "service", None)
    settings = service.settings if service is not None else Settings()
    spoken = protocols(settings)
    if service is not None:
        service.gauges[Name.CONNECTIONS] = spoken["ws"].watch.__len__
    quiet: Any = {"log_config": None, "access_log": False, "timeout_graceful_shutdown": 5}
    config = uvicorn.Config(app, **spoken, **quiet)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        while not server.started:
            assert not task.done(), "the server did not start"
            await asyncio.sleep(0.005)
        yield "http://{}:{}".format(*sock.getsockname())
    finally:
        server.should_exit = True
        await task
        sock.close()


@asynccontextmanager
async def serving(program: Any, **settings: Any) -> AsyncIterator[str]:
    """The address of a server for a program or a `serve` function."""
    async with running(build_app(program, **settings)) as url:
        yield url


class Process:
    """A server in a process of its own, as a user starts it."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, log: list[str]) -> None:
        self.process = process
        self.url = url
        self.log = log

    def signal(self, name: str) -> None:
        self.process.send_signal(signal.Signals[name])

    async def wait(self, seconds: float) -> int:
        """The exit status; raises when the process is still there after `seconds`."""
        async with asyncio.timeout(seconds):
            return await self.process.wait()


@asynccontextmanager
async def process(
    program: Path, *options: str, env: dict[str, str] | None = None, descriptors: tuple[int, int] | None = None
) -> AsyncIterator[Process]:
    """`python -m mellea_responses serve PROGRAM --port 0 …`; killed at the end if it is still there.

    `descriptors` are its soft and hard limits of open files and sockets.
    """

    def limit() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, descriptors)

    arguments = ["-m", "mellea_responses", "serve", str(program), "--port", "0", *options]
    paths = [str(ROOT), str(ROOT / "test"), os.environ.get("PYTHONPATH", "")]
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1", **(env or {})},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=limit,
    )
    log: list[str] = []
    reading: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(60):
            url = await _address(started, log)
        reading = asyncio.create_task(_drain(started, log))
        yield Process(started, url, log)
    finally:
        with suppress(ProcessLookupError):
            started.kill()
        await started.wait()
        if reading is not None:
            await reading


async def _address(started: asyncio.subprocess.Process, log: list[str]) -> str:
    assert started.stderr is not None
    while line := (await started.stderr.readline()).decode():
        log.append(line)
        if url := _first_url(line):
            return url
    raise AssertionError("the server ended before it said where it listens:\n" + "".join(log))


def _first_url(line: str) -> str | None:
    words = [word.rstrip("/.,") for word in line.split() if word.startswith("http://127.0.0.1:")]
    return "/".join(words[0].split("/")[:3]) if words else None


async def _drain(started: asyncio.subprocess.Process, log: list[str]) -> None:
    assert started.stderr is not None
    while line := (await started.stderr.readline()).decode():
        log.append(line)


Serve = Callable[..., Any]
