"""Resident memory of the server without a model, over the interpreter's own."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import ROOT, Row, Server, fetch, interleaved, main, post, resident_mib, row, started
from benchmarks.http_apps import commands

PATH, BODY = "/v1/responses", {"model": "m", "input": "Say something about a fox."}
PROGRAMS = {
    "turn": "def serve(turn):\n    return 'A fox.'\n",
    "messages": "def serve(input):\n    return 'A fox.'\n",
    "mellea": "import mellea\n\n\ndef serve(input):\n    return 'A fox.'\n",
}


def measure(quick: bool = False) -> Iterator[Row]:
    starts, requests = (1, 4) if quick else (3, 16)  # stored answers are not the server
    readings: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        every: dict[str, list[str]] = commands("builtin")
        for name, text in PROGRAMS.items():
            file = Path(folder, f"program_{name}.py")  # its folder becomes importable: not the name of a module
            file.write_text(text)
            every[name] = ["-m", "mellea_responses", "serve", str(file), "--port", "0"]
        for _ in range(starts):
            interpreter = _interpreter()
            with started(every) as servers:
                for server in servers:
                    readings.setdefault(server.name, []).append(_used(server, requests) - interpreter)
    yield row("memory without Mellea, built-in program", readings["builtin"], 45, "MiB")
    yield row("memory without Mellea, `serve(turn)`", readings["turn"], 45, "MiB")
    yield row("memory with a program, `serve(input)`", readings["messages"], 95, "MiB")
    yield row("memory with a program that imports Mellea", readings["mellea"], 95, "MiB")


def _interpreter() -> float:
    """The same interpreter with nothing to do."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        memory = resident_mib(process.pid)
        process.kill()
    return memory


def _used(server: Server, requests: int) -> float:
    """What it holds once it has answered, so that whatever loads late is loaded."""
    fetch(server, PATH, BODY)
    fetch(server, PATH, {**BODY, "stream": True})
    interleaved([server], post(PATH, BODY), count=requests, clients=8, rounds=1)
    return resident_mib(server.pid)


if __name__ == "__main__":
    main(measure)
