"""A reader who does what a page says: saves its programs, types its commands, runs its clients, compares the output.

What a block of a page means:

- `python NAME.py`: a file, saved beside the others.
- `sh`: commands. `mellea-responses serve NAME.py …` starts a server, which takes the place of the one before;
  `make serve` starts one without a program.
- `python`: a client. It runs in the session of the clients before it and talks to the server that was started last.
- `text` or `json`: what the block before it printed; `...` stands for anything. Lines that begin with `> ` are a chat
  with the program that was saved last: a question, then the answer; each turn continues the one before.
"""

import asyncio
import contextlib
import doctest
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

FENCE = re.compile(r"^```(\w*)[ ]?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8080"

Serve = Callable[[list[str]], AbstractAsyncContextManager[str]]
"""Serves with the words after `mellea-responses serve` and yields the address."""


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, top to bottom."""
    text = page.read_text("utf-8")
    for match in FENCE.finditer(text):
        yield Block(match[1], match[2], match[3], text.count("\n", 0, match.start()) + 1)


def commands(block: Block) -> list[str]:
    """The commands of an `sh` block, one a line; a backslash goes on."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [re.sub(r" +", " ", line).strip() for line in lines if line.strip() and not line.startswith("#")]


class Reader:
    """Reads one page.

    Args:
        folder: Where files are saved.
        serve: How a server is started.
        known: Beginnings of commands that are looked at elsewhere and not typed here.
    """

    def __init__(self, folder: Path, serve: Serve, known: tuple[str, ...] = ()) -> None:
        self._folder, self._serve, self._known = folder, serve, known
        self._url = ""
        self._program = ""
        self._printed = ""
        self._session: dict[str, Any] = {"__name__": "__main__"}
        self._servers = AsyncExitStack()

    async def read(self, page: Path) -> None:
        """Does everything the page says; an `AssertionError` says where the page is wrong."""
        async with self._servers:
            try:
                for block in blocks(page):
                    try:
                        await self._do(block)
                    except Exception as exc:
                        raise AssertionError(f"{page.name}, line {block.line}: {exc!r}") from exc
            finally:
                for value in self._session.values():
                    if type(value).__name__ == "OpenAI":
                        value.close()

    async def _do(self, block: Block) -> None:
        match block.language:
            case "python" if block.title:
                (self._folder / block.title).write_text(block.text, "utf-8")
                self._program, self._url = block.title, ""
            case "python":
                await self._ensure_server()
                self._printed = await asyncio.to_thread(self._run, block.text)
            case "sh":
                for command in commands(block):
                    await self._type(command)
            case "text" if block.text.startswith("> "):
                await self._ensure_server()
                self._printed = await self._chat(block.text)
                self._compare(block.text)
            case "text":
                self._compare(block.text)
            case "json":
                self._compare_json(block.text)
            case "":
                pass  # a drawing
            case other:
                raise ValueError(f"nobody here knows what to do with a block of {other!r}")

    async def _ensure_server(self) -> None:
        if not self._url:
            await self._start([self._program])

    async def _start(self, words: list[str]) -> None:
        await self._servers.aclose()
        self._url = await self._servers.enter_async_context(self._serve(words))

    async def _type(self, command: str) -> None:
        words = command.split()
        if words[:2] == ["mellea-responses", "serve"]:
            await self._start(words[2:])
        elif words == ["make", "serve"]:
            await self._start([])
        elif words[0] == "curl":
            await self._ensure_server()
            self._printed = await _shell(command.replace(ADDRESS, self._url), self._folder)
        elif not command.startswith(self._known):
            raise ValueError(f"nobody here knows how to type {command!r}")

    def _run(self, client: str) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(client.replace(ADDRESS, self._url), "<page>", "exec"), self._session)  # our own pages
        return printed.getvalue()

    async def _chat(self, wanted: str) -> str:
        shown: list[str] = []
        previous = None
        async with httpx2.AsyncClient(base_url=self._url, timeout=30) as client:
            for question in re.findall(r"^> (.*)$", wanted, re.MULTILINE):
                body = {"input": question, "previous_response_id": previous}
                answer = (await client.post("/v1/responses", json=body)).json()
                shown += [f"> {question}", said(answer)]
                previous = answer.get("id", previous)
        return "\n".join(shown) + "\n"

    def _compare(self, wanted: str) -> None:
        printed = re.sub(r" +$", "", self._printed, flags=re.MULTILINE)  # a page cannot show these
        same = doctest.OutputChecker().check_output(wanted, printed, doctest.ELLIPSIS)
        assert same, f"the page shows\n{wanted}\nbut this came\n{self._printed}"

    def _compare_json(self, wanted: str) -> None:
        got = json.loads(self._printed)
        assert fits(json.loads(wanted), got), f"the page shows\n{wanted}\nbut this came\n{got}"


def said(answer: dict[str, Any]) -> str:
    """An answer as pages show it in a chat."""
    if answer.get("object") != "response":
        error = answer["error"]
        return f"{error['code']}: {error['message']}"
    return "".join(_shown(item) for item in answer["output"])


def _shown(item: dict[str, Any]) -> str:
    if item["type"] == "message":
        return "".join(part.get("text") or part.get("refusal", "") for part in item["content"])
    if item["type"] == "reasoning":
        return "".join(f"({part['text']}) " for part in item["content"])
    return f"{item['name']} {item['arguments']}"


def fits(wanted: Any, got: Any) -> bool:
    """Whether everything that is wanted is there; `...` fits anything."""
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(key in got and fits(value, got[key]) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(got, list) and len(wanted) == len(got) and all(map(fits, wanted, got))
    return bool(wanted == "..." or wanted == got)


async def _shell(command: str, folder: Path) -> str:
    shell = await asyncio.create_subprocess_shell(
        command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await shell.communicate()
    assert shell.returncode == 0, err.decode()
    return out.decode()


@contextlib.contextmanager
def started(command: list[str], folder: Path) -> Iterator[str]:
    """The address of a server that was started with a command of a page, on a free port in a process of its own."""
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    words = [*command, "--port", "0"]
    with subprocess.Popen(words, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        rest = threading.Thread(target=process.stderr.read)  # a full pipe would stop the server
        log = ""
        try:
            while not (found := re.search(r"listening on (http://[^/\s]+)", log)):
                line = process.stderr.readline()
                assert line, f"the server ended before it said where it listens:\n{log}"
                log += line
            rest.start()
            yield found[1]
        finally:
            process.kill()
            if rest.ident is not None:
                rest.join()
