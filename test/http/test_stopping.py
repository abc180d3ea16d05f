"""SIGTERM and the end of the process, in a process of its own."""

import asyncio
import os
import signal
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from support import raw
from support.raw import get, post, posting
from support.recogniser import recognise_frames
from support.serving import Process, process
from support.stand_in import Json

ASK: Json = {"model": "m", "input": "x", "stream": True}
PROGRAMS = {
    "talks without end": """
import asyncio
async def serve(input):
    while True:
        yield "word "
        await asyncio.sleep(0.02)
""",
    "talks without end in a thread": """
import time
def serve(input):
    while True:
        yield "word "
        time.sleep(0.02)
""",
    "blocks its thread": """
import time
def serve(input):
    yield "word "
    time.sleep(3600)
""",
    "blocks its loop": """
import time
async def serve(input):
    yield "word "
    time.sleep(3600)
""",
    "swallows every exception": """
import asyncio
async def serve(input):
    while True:
        try:
            yield "word "
            await asyncio.sleep(0.02)
        except BaseException:
            pass
""",
    "never gives the interpreter back": """
def serve(input):
    yield "word "
    while True:
        pass
""",
}


@pytest.fixture
def program(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "prog.py"
    path.write_text(PROGRAMS[request.param])
    return path


async def stopped(server: Process, *, signals: int = 1) -> tuple[raw.Answer, float, int]:
    """The answer of a stream that is open when the signal comes, and how the process ended."""
    async with raw.exchange(server.url, posting(ASK)) as opened:
        async for frame in opened.frames():
            if frame.is_event and "delta" in frame.json:
                break
        sent = monotonic()
        for _ in range(signals):
            server.signal("SIGTERM")
        rest = asyncio.create_task(opened.finish())
        status = await server.wait(10)
        took = monotonic() - sent
        return await rest, took, status


@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
async def test_an_open_stream_gets_its_end_and_the_process_is_gone_within_two_seconds(program: Path) -> None:
    async with process(program) as server:
        answer, took, status = await stopped(server)

    assert took < 2
    assert answer.clean
    assert recognise_frames(answer.frames)["status"] in {"cancelled", "incomplete", "failed"}
    assert status in {0, -signal.SIGTERM, 128 + signal.SIGTERM}
    assert "Traceback" not in "".join(server.log)


@pytest.mark.parametrize("program", ["blocks its thread"], indirect=True)
async def test_a_plain_request_that_is_open_gets_an_answer_or_a_close(program: Path) -> None:
    async with process(program) as server:
        waiting = asyncio.create_task(post(server.url, {**ASK, "stream": False}))
        while not any("health" in line for line in server.log):
            if (await get(server.url, "/health")).status == 200:
                break
        await asyncio.sleep(0.3)  # the request must be in the program, which cannot say so
        sent = monotonic()
        server.signal("SIGTERM")
        await server.wait(10)
        took = monotonic() - sent
        answer = await waiting

    assert took < 2
    assert answer.status >= 500
    assert answer.error["code"]


@pytest.mark.parametrize("program", ["blocks its thread"], indirect=True)
async def test_a_second_signal_ends_the_process_at_once(program: Path) -> None:
    async with process(program) as server:
        _, took, _ = await stopped(server, signals=2)

    assert took < 1


@pytest.mark.parametrize("program", ["talks without end"], indirect=True)
async def test_an_idle_server_stops_cleanly(program: Path) -> None:
    async with process(program) as server:
        assert (await get(server.url, "/ready")).status == 200
        server.signal("SIGTERM")

        assert await server.wait(2) in {0, -signal.SIGTERM, 128 + signal.SIGTERM}


@pytest.mark.parametrize("program", ["talks without end"], indirect=True)
async def test_an_interrupt_stops_it_the_same(program: Path) -> None:
    async with process(program) as server:
        server.signal("SIGINT")
        await server.wait(2)

    assert "Traceback" not in "".join(server.log)


BROKEN: dict[str, tuple[str, str]] = {
    "a syntax error": ("def serve(input)\n", "line 1"),
    "no serve": ("def answer(input): ...\n", "serve"),
    "a wrong signature": ("def serve(question): ...\n", "question"),
    "an error at import": ("1 / 0\n", "ZeroDivisionError"),
    "a serve that is no function": ("serve = 5\n", "serve"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_program_that_cannot_be_served_is_one_clear_line(tmp_path: Path, name: str) -> None:
    source, word = BROKEN[name]
    (tmp_path / "prog.py").write_text(source)

    status, said = await ended(str(tmp_path / "prog.py"))

    assert status not in (0, None)
    assert word in said
    assert "prog.py" in said
    assert len(said.strip().splitlines()) == 1, said


async def test_a_program_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    status, said = await ended(str(tmp_path / "ghost.py"))

    assert status != 0
    assert "ghost.py" in said
    assert "Traceback" not in said


async def ended(program: str, **env: str) -> tuple[int | None, str]:
    import sys

    from support.serving import ROOT

    arguments: Any = ["-m", "mellea_responses", "serve", program, "--port", "0"]
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "400", **env},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, said = await started.communicate()
    return started.returncode, said.decode()


async def test_a_program_finds_the_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'found'\n")
    (tmp_path / "json.py").write_text("raise SystemExit('a real module was overwritten')\n")
    (tmp_path / "prog.py").write_text("from beside import WORD\n\ndef serve(input):\n    return WORD\n")
    async with process(tmp_path / "prog.py") as server:
        answer = await post(server.url, {"model": "m", "input": "x"})

    assert answer.json["output"][0]["content"][0]["text"] == "found"
