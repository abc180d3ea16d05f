"""What others take for the same turn of a conversation, where the environment names them.

    TRANSFORMERS_SERVE=other/bin/transformers    # `transformers serve`, from an environment with transformers[serving]
    LOCAL_HF=other/bin/python                    # Mellea's LocalHFBackend, from one that it works in

Both read chat messages alone, so calls and their results are given as text.
"""

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import START_SECONDS, Server
from benchmarks.turns import request

Messages = list[dict[str, str]]


class Peer(NamedTuple):
    """Somebody else's way to answer; `ask` gives CPU seconds and the tokens of the prompt."""

    name: str
    ask: Callable[[Messages], tuple[float, int]]


@contextmanager
def peers(folder: str) -> Iterator[list[Peer]]:
    """Those that the environment names, over the model in `folder`, each with its late imports behind it."""
    with ExitStack() as stack:
        found: list[Peer] = []
        if command := os.environ.get("TRANSFORMERS_SERVE"):
            found.append(stack.enter_context(_transformers_serve(command, folder)))
        if python := os.environ.get("LOCAL_HF"):
            found.append(stack.enter_context(_local_hf(python, folder)))
        for peer in found:
            peer.ask([{"role": "user", "content": "Hello"}])
        yield found


def as_messages(instructions: str, items: list[dict[str, Any]]) -> Messages:
    """A conversation as text, without an answer at its end."""
    messages = [{"role": "system", "content": instructions}]
    for item in items:
        parts = item.get("content") or item.get("output") or f"{item.get('name')}({item.get('arguments')})"
        text = parts if isinstance(parts, str) else "".join(part["text"] for part in parts)
        role = item.get("role") or ("user" if "output" in item else "assistant")
        messages.append({"role": role, "content": text})
    if messages[-1]["role"] == "assistant":
        del messages[-1]
    return messages


@contextmanager
def _transformers_serve(command: str, folder: str) -> Iterator[Peer]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ["serve", folder, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    with tempfile.NamedTemporaryFile() as log:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        process = subprocess.Popen([command, *arguments], env=environment, stdout=log, stderr=log)
        try:
            _wait(process, port, log.name)
            server = Server(folder, process.pid, port)

            def ask(messages: Messages) -> tuple[float, int]:
                body = {"model": folder, "messages": messages, "max_tokens": 1, "temperature": 0, "stream": False}
                answer, seconds = request(server, "/v1/chat/completions", body)
                return seconds, answer["usage"]["prompt_tokens"]

            yield Peer("`transformers serve`", ask)
        finally:
            process.kill()
            process.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int, log: str) -> None:
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    with open(log, encoding="utf-8") as lines:
        raise RuntimeError(f"{process.args!r} did not start:\n{lines.read()[-2000:]}")


@contextmanager
def _local_hf(python: str, folder: str) -> Iterator[Peer]:
    script = Path(__file__).with_name("local_hf.py")
    pipe = subprocess.PIPE
    process = subprocess.Popen([python, script, folder], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    asked, answered = process.stdin, process.stdout

    def ask(messages: Messages) -> tuple[float, int]:
        print(json.dumps(messages), file=asked, flush=True)
        answer = json.loads(answered.readline() or "null")
        if answer is None:
            raise RuntimeError("LocalHFBackend ended; run benchmarks/local_hf.py by hand to see why.")
        return answer["seconds"], answer["tokens"]

    try:
        yield Peer("`LocalHFBackend`", ask)
    finally:
        process.kill()
        process.wait()
