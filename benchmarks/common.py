"""What the benchmarks share: servers in processes of their own, a lean client, CPU time, and one table.

The machine may be busy, so nothing is compared across runs: every contestant is measured in every short round, in turn,
and a figure is the median of the rounds' own ratios. Linux only: CPU time is the kernel's clock of another process, and
memory comes from `/proc`.
"""

import argparse
import asyncio
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 120


class Row(NamedTuple):
    """One line of the table: the median and the middle half of the rounds, their calm value, and our own limit."""

    measure: str
    value: float
    low: float
    high: float
    calm: float
    target: float | None = None
    unit: str = "×"
    note: str = ""


def row(
    measure: str,
    rounds: Sequence[float],
    target: float | None = None,
    unit: str = "×",
    *,
    calm: float | None = None,
    note: str = "",
) -> Row:
    """`calm` is the value without the noise of the machine; the lowest round where nothing better is known."""
    spread = statistics.quantiles(rounds, n=4, method="inclusive") if len(rounds) > 1 else [rounds[0]] * 3
    low, middle, high = spread
    return Row(measure, middle, low, high, min(rounds) if calm is None else calm, target, unit, note)


def table(rows: Iterable[Row]) -> str:
    lines = ["| measure | median | middle half | calm | at most | |", "| --- | --- | --- | --- | --- | --- |"]
    for one in rows:
        spread = f"{_figure(one.low)} to {_figure(one.high)}"
        target = _figure(one.target) if one.target is not None else ""
        verdict = "" if one.target is None else "yes" if one.value <= one.target else "no"
        note = "; ".join(filter(None, (verdict, one.note)))
        figures = f"{_figure(one.value)} {one.unit} | {spread} | {_figure(one.calm)} | {target}"
        lines.append(f"| {one.measure} | {figures} | {note} |")
    return "\n".join(lines)


def _figure(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def main(measure: Callable[[bool], Iterable[Row]]) -> None:
    """The command line of one benchmark."""
    parser = argparse.ArgumentParser(description=sys.modules[measure.__module__].__doc__)
    parser.add_argument("--quick", action="store_true", help="a few requests: shows that it runs")
    print(table(measure(parser.parse_args().quick)))


# Servers.


@dataclass(frozen=True)
class Server:
    name: str
    pid: int
    port: int


@contextmanager
def started(commands: Mapping[str, Sequence[str]]) -> Iterator[list[Server]]:
    """`python …` for each of these names, at the same time. Their logs go to files, as in real life."""
    with ExitStack() as stack:
        opened = [(name, *stack.enter_context(_process(command))) for name, command in commands.items()]
        yield [Server(name, process.pid, _port(process, log)) for name, process, log in opened]


@contextmanager
def _process(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            yield process, Path(log.name)
        finally:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    """Where it says that it listens."""
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text()):
            return int(found[1])
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} did not start:\n{log.read_text()}")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and all its threads, to the nanosecond: what `clock_getcpuclockid` names.

    `/proc/PID/stat` counts in ticks of 10 ms, too coarse for a short round.
    """
    return time.clock_gettime(~pid << 3 | 2)


def resident_mib(pid: int) -> float:
    """Resident memory, counted page by page."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no memory figure for process {pid}")


# Requests.


def post(path: str, body: Any) -> bytes:
    """A request as it goes over the wire."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def fetch(server: Server, path: str, body: Any) -> bytes:
    """One answer's body, for the references that repeat it and to see that it is an answer at all."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    if answer.status != 200 or b'"status":"completed"' not in content:
        raise RuntimeError(f"{server.name} answered {answer.status}: {content[:500]!r}")
    return content


class Reading(NamedTuple):
    """One contestant in one round, per request."""

    cpu: float
    wall: float


class Client:
    """Some connections to one server, kept open between the rounds: what they cost is not the answers' cost."""

    def __init__(self, server: Server, request: bytes, connections: int) -> None:
        self.server, self.request = server, request
        self._size, self._left, self._busy, self._lost = connections, 0, 0, ""
        self._finished: asyncio.Future[None] | None = None
        self._connections: list[_Connection] = []

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(self._size):
            _, connection = await loop.create_connection(lambda: _Connection(self), "127.0.0.1", self.server.port)
            self._connections.append(connection)

    async def send(self, count: int) -> Reading:
        """`count` requests, each connection sending its next one the moment it has its answer."""
        busy = self._connections[:count]
        self._left, self._busy, self._finished = count - len(busy), len(busy), asyncio.Future()
        if self._lost:
            raise RuntimeError(f"{self.server.name} {self._lost}")
        cpu, wall = cpu_seconds(self.server.pid), time.perf_counter()
        for connection in busy:
            connection.send()
        async with asyncio.timeout(120):
            await self._finished
        return Reading((cpu_seconds(self.server.pid) - cpu) / count, (time.perf_counter() - wall) / count)

    def answered(self, connection: "_Connection") -> None:
        if self._left:
            self._left -= 1
            connection.send()
            return
        self._busy -= 1
        if not self._busy and self._finished is not None and not self._finished.done():
            self._finished.set_result(None)

    def fail(self, reason: str) -> None:
        self._lost = reason
        if self._finished is not None and not self._finished.done():
            self._finished.set_exception(RuntimeError(f"{self.server.name} {reason}"))

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class _Connection(asyncio.Protocol):
    """Looks at no more of an answer than it needs to find its end."""

    def __init__(self, client: Client) -> None:
        self._client, self._head, self._need, self._tail = client, b"", 0, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def send(self) -> None:
        self._transport.write(self._client.request)

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        if not self._need:
            head, end, data = (self._head + data).partition(b"\r\n\r\n")
            if not end:
                self._head = head
                return
            self._begin(head.lower())
        if self._need < 0:
            self._tail = (self._tail + data)[-7:]
            if self._tail == b"\r\n0\r\n\r\n":
                self._end()
        else:
            self._need -= len(data)
            if self._need == 0:
                self._end()

    def _begin(self, head: bytes) -> None:
        if not head.startswith(b"http/1.1 200"):
            self._client.fail(f"answered {head[:200]!r}")
        _, found, length = head.partition(b"content-length:")
        self._need = int(length.split(b"\r\n")[0]) if found else -1
        self._head = self._tail = b""

    def _end(self) -> None:
        self._need = 0
        self._client.answered(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.fail(f"closed a connection ({exc})")


def interleaved(
    servers: Sequence[Server], request: bytes, *, count: int, clients: int, rounds: int
) -> dict[str, list[Reading]]:
    """Every server in every round, forwards and backwards by turns, so that a slow second strikes all alike."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_interleaved([Client(server, request, clients) for server in servers], count, rounds))


async def _interleaved(clients: Sequence[Client], count: int, rounds: int) -> dict[str, list[Reading]]:
    readings: dict[str, list[Reading]] = {client.server.name: [] for client in clients}
    for client in clients:
        await client.open()
        await client.send(count)  # caches, threads, late imports
    for i in range(rounds):
        for client in clients if i % 2 == 0 else reversed(clients):
            readings[client.server.name].append(await client.send(count))
    for client in clients:
        client.close()
    return readings


def against(
    readings: dict[str, list[Reading]], floor: str, measure: str, name: str, target: float | None = None
) -> Row:
    """CPU against the floor's: round by round, and in the calmest rounds of each."""
    ours, theirs = ([one.cpu for one in readings[key]] for key in (name, floor))
    note = f"{_calm(ours) * 1e6:.0f} against {_calm(theirs) * 1e6:.0f} µs"
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return row(measure, ratios, target, calm=_calm(ours) / _calm(theirs), note=note)


def _calm(costs: Sequence[float]) -> float:
    """The mean of the cheapest tenth: what is left when other work takes the caches away least."""
    cheapest = sorted(costs)[: max(1, len(costs) // 10)]
    return statistics.fmean(cheapest)
