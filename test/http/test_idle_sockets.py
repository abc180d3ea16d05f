"""Sockets by the thousand that say nothing: the server goes on answering and lets them go."""

import asyncio
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.raw import get, post, posting
from support.serving import process

ASK = {"model": "m", "input": "x"}
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open sockets are counted in /proc")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "echo.py"
    path.write_text("def serve(input):\n    return input[-1].content\n")
    return path


@contextmanager
def descriptors(wanted: int) -> Iterator[None]:
    """Lets this process open as many."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], wanted), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def idle(url: str, count: int) -> list[socket.socket]:
    address = ("127.0.0.1", int(url.rsplit(":", 1)[1]))
    return [socket.create_connection(address, timeout=30) for _ in range(count)]


def open_in(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def cpu_of(pid: int) -> float:
    return time.clock_gettime(~pid << 3 | 2)


async def hold(url: str, count: int, pid: int) -> tuple[int, list[int]]:
    """Opens `count` sockets and asks meanwhile: the most that the server had open, and the answers' status."""
    opening = asyncio.create_task(asyncio.to_thread(idle, url, count))
    answers, most = [], 0
    while not opening.done() or len(answers) < 6:
        answers += [(await get(url, "/health")).status, (await post(url, ASK)).status]
        most = max(most, open_in(pid))
    for one in await opening:
        one.close()
    return most, answers


async def test_idle_sockets_beyond_the_limit_make_room_and_go_after_the_time_for_headers(program: Path) -> None:
    async with process(program, "--max-connections", "100", "--header-timeout", "1") as server:
        pid, url = server.process.pid, server.url
        assert (await post(url, ASK)).status == 200
        before = open_in(pid)
        sockets = await asyncio.to_thread(idle, url, 300)
        assert (await post(url, ASK)).status == 200
        assert open_in(pid) <= before + 110
        while open_in(pid) > before + 1:  # noqa: ASYNC110  # another process tells nothing
            await asyncio.sleep(0.1)

        assert (await post(url, ASK)).status == 200
        for one in sockets:
            one.close()


@pytest.mark.skipif(HARD < 12_000, reason="this machine lets no process open so many")
async def test_ten_thousand_idle_sockets_do_not_keep_anybody_else_waiting(program: Path) -> None:
    with descriptors(10_500):
        # None may be over before the last is open, however long a busy machine takes.
        async with process(program, "--header-timeout", "600", descriptors=(1024, min(HARD, 20_000))) as server:
            assert (await post(server.url, ASK)).status == 200
            most, answers = await hold(server.url, 10_000, server.process.pid)

    assert most > 10_000
    assert set(answers) == {200}


async def test_a_server_with_no_descriptor_left_neither_spins_nor_ends(program: Path) -> None:
    async with process(program, "--max-connections", "1000", descriptors=(64, 64)) as server:
        pid, url = server.process.pid, server.url
        assert (await post(url, ASK)).status == 200
        sockets = await asyncio.to_thread(idle, url, 100)
        spent = cpu_of(pid)
        await asyncio.sleep(1)
        spent = cpu_of(pid) - spent
        for one in sockets:
            one.close()
        async with asyncio.timeout(20):
            while not await is_answered(url):  # noqa: ASYNC110  # another process tells nothing
                await asyncio.sleep(0.05)

    assert spent < 0.5


async def is_answered(url: str) -> bool:
    """Whether the server has a descriptor for a request; without one it cannot even say so."""
    try:
        return (await post(url, ASK)).status == 200
    except ConnectionError:
        return False


async def test_a_client_that_stops_reading_is_let_go_by_the_faster_loop_too(tmp_path: Path) -> None:
    path = tmp_path / "endless.py"
    times = "10**6 if input[-1].content == 'x' else 1"
    path.write_text(f"def serve(input):\n    for _ in range({times}):\n        yield 'word ' * 1000\n")
    async with process(path, "--write-timeout", "1") as server:
        assert (await post(server.url, {**ASK, "input": "y"})).status == 200
        before = open_in(server.process.pid)
        request = posting({**ASK, "stream": True})
        (client,) = await asyncio.to_thread(idle, server.url, 1)
        client.sendall(request.encode("127.0.0.1") + request.content)
        async with asyncio.timeout(60):
            while not any("end=max_output_tokens" in line for line in server.log):  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.05)
            while open_in(server.process.pid) > before:  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.05)
        client.close()
