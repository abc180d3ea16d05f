"""Load of every kind on one server process: `python -m benchmarks.load [--seconds 300] [--clients 64]`.

Each client asks with texts of its own and looks whether they come back; some leave in the middle, send rubbish or read
slowly. Another process asks for `/health` every 100 ms. In the end nothing may be left on the server: no answer, no
stream, connection or task, and after their time no stored response. Fails when anything is wrong.
"""

import argparse
import asyncio
import http.client
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.common import Server, cpu_seconds, resident_mib, started
from benchmarks.load_clients import PROGRAM, Client, all_at_once

KEYS = [f"load-{name}-{'k' * 32}" for name in ("ada", "bob", "cy")]
EVERY = 0.1
SETTLED = 60


def probe(port: int, over: Any, found: Any) -> None:
    """Asks for `/health` again and again, each time over a new connection; tells how long each took."""
    took = []
    while not over.wait(EVERY):
        begun = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/health")
        status = connection.getresponse().status
        connection.close()
        took.append(time.perf_counter() - begun if status == 200 else float("inf"))
    found.put(took)


def levels(server: Server) -> dict[str, float]:
    """What the server says of itself."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", "/metrics", headers={"authorization": f"Bearer {KEYS[0]}"})
    page = connection.getresponse().read().decode()
    connection.close()
    pairs = (line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("mellea_responses_"))
    return {name.removeprefix("mellea_responses_"): float(value) for name, value in pairs}


def left(before: dict[str, float], server: Server) -> dict[str, float]:
    """What is still there that was not there before, once nothing changes any more."""
    nothing = ("runs_active", "runs_waiting", "streams_open", "request_bytes", "stored_responses", "store_bytes")
    wanted = dict.fromkeys(nothing, 0.0) | {"live_calls": 0.0} | {k: before[k] for k in ("connections", "tasks")}
    until = time.monotonic() + SETTLED
    while True:
        now = levels(server)
        more = {name: now[name] for name, most in wanted.items() if now[name] > most}
        if not more or time.monotonic() > until:
            return more
        time.sleep(0.5)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def served(options: argparse.Namespace) -> tuple[list[Client], list[float], list[str]]:
    """The clients with what they saw, how long `/health` took, and what was left."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "echo.py")
        program.write_text(f"{PROGRAM}\n\nPACE = {options.pace}\n")
        command = ["-m", "mellea_responses", "serve", str(program), "--port", "0", "--metrics"]
        command += ["--response-ttl", f"{options.ttl:g}", *(word for key in KEYS for word in ("--api-key", key))]
        with started({"load": command}) as (server,):
            return driven(server, options)


def driven(server: Server, options: argparse.Namespace) -> tuple[list[Client], list[float], list[str]]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(all_at_once(server.port, KEYS, 4, 0.5, options.seed, 0))  # threads, late imports
        time.sleep(1)
        before, files = levels(server), descriptors(server.pid)
        context = multiprocessing.get_context("spawn")
        over, found = context.Event(), context.Queue()
        probing = context.Process(target=probe, args=(server.port, over, found))
        probing.start()
        cpu = cpu_seconds(server.pid)
        people = runner.run(
            all_at_once(server.port, KEYS, options.clients, options.seconds, options.seed + 1000, options.think)
        )
        cpu = cpu_seconds(server.pid) - cpu
        over.set()
        took = found.get(timeout=60)
        probing.join()
    problems = [f"{name} is still {value:g}" for name, value in left(before, server).items()]
    until = time.monotonic() + SETTLED
    while (now := descriptors(server.pid)) > files and time.monotonic() < until:
        time.sleep(0.5)  # the server has not seen yet that our last question's connection is closed
    if now > files:
        problems.append(f"{now - files} more descriptors are open than before")
    after = levels(server)
    print(f"server: {cpu:.0f} s of processor time, {resident_mib(server.pid):.0f} MiB resident at the end")
    print("left: " + ", ".join(f"{name} {after[name]:g}" for name in LEVELS))
    return people, took, problems


LEVELS = (
    "runs_active", "runs_waiting", "streams_open", "connections", "request_bytes", "tasks", "threads",
    "stored_responses", "store_bytes", "live_calls",
)  # fmt: skip


def report(people: list[Client], took: list[float], seconds: float) -> list[str]:
    """Prints what was seen; returns what was wrong."""
    statuses, done = Counter[int](), Counter[str]()
    for one in people:
        statuses.update(one.statuses)
        done.update(one.done)
    wrong = [f"{one.name} {what}" for one in people for what in one.wrong]
    ms = sorted(1000 * one for one in took)
    print(f"{sum(done.values())} acts of {len(people)} clients in {seconds:g} s: {dict(done.most_common())}")
    print(f"answers by status: {dict(sorted(statuses.items()))}")
    print(
        f"/health, {len(ms)} times: median {statistics.median(ms):.1f} ms, p99 {p99(took) * 1000:.1f} ms, "
        f"longest {ms[-1]:.1f} ms; load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    failed = {status: count for status, count in statuses.items() if status >= 500}
    return wrong + [f"{count} answers were {status}" for status, count in failed.items()]


def p99(took: list[float]) -> float:
    return sorted(took)[min(len(took) - 1, int(len(took) * 0.99))]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--think", type=float, default=0.5, help="seconds a client may think before it asks again")
    parser.add_argument("--pace", type=float, default=0.005, help="seconds between two words of an answer")
    parser.add_argument("--ttl", type=float, default=20, help="seconds the server keeps responses")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--p99", type=float, help="milliseconds that /health may take; without it they are only told")
    options = parser.parse_args()
    people, took, problems = served(options)
    problems += report(people, took, options.seconds)
    if options.p99 is not None and p99(took) * 1000 > options.p99:
        problems.append(f"/health took more than {options.p99:g} ms")
    for problem in problems[:50]:
        print(f"WRONG: {problem}")
    print(f"{len(problems)} wrong")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
