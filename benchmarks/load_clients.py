"""The clients of `benchmarks.load`: each asks with a text of its own and looks whether that is what comes back."""

import asyncio
import json
import random
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import websockets

PROGRAM = '''
"""Says what it was told in all turns, word by word; with a tool, what the tool told."""

import time

from mellea_responses.turn import Call, CallArgs, CallEnd, Text


def serve(input, turn):
    said = [message.content for message in input if message.role in ("user", "tool")]
    if turn.tools and input[-1].role == "user":
        yield Call("1", "look")
        yield CallArgs("1", "{}")
        yield CallEnd("1")
        return
    for word in " | ".join(said).replace(" ", "  ").split(" "):
        yield Text(word or " ")
        time.sleep(PACE)
'''
ENDS = ("response.completed", "response.failed", "response.incomplete", "error")


class Wrong(Exception):
    """An answer is not what it must be."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Line:
    """One connection that speaks HTTP."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        self.reader, self.writer, self._key = reader, writer, key

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> None:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        fields = {
            "host": "127.0.0.1",
            "authorization": f"Bearer {self._key}",
            "content-type": "application/json",
            "content-length": str(len(content)),
            **headers,
        }
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + content)

    async def head(self) -> tuple[int, dict[str, str]]:
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(first.split(" ")[1]), headers

    async def pieces(self, headers: dict[str, str]) -> AsyncIterator[bytes]:
        if "content-length" in headers:
            yield await self.reader.readexactly(int(headers["content-length"]))
            return
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readuntil(b"\r\n")

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        self.send(method, path, body, **headers)
        status, got = await self.head()
        return Answer(status, got, b"".join([piece async for piece in self.pieces(got)]))

    def cut(self) -> None:
        """Ends the connection with a reset."""
        sock: Any = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Client:
    """One person with one key, doing one thing after the other.

    Args:
        port: Where the server is.
        key: Whose requests these are.
        name: Makes its texts its own.
        dice: Chooses what comes next.
        think: Seconds it may take before it asks again.
    """

    def __init__(self, port: int, key: str, name: str, dice: random.Random, think: float) -> None:
        self._port, self._key, self._dice = port, key, dice
        self.name, self._think = name, think
        self._count = 0
        self.statuses: dict[int, int] = {}
        self.done: dict[str, int] = {}
        self.wrong: list[str] = []

    async def run(self, until: float) -> None:
        kinds = [kind for kind, weight in KINDS.items() for _ in range(weight)]
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            await asyncio.sleep(self._dice.uniform(0, self._think))
            kind = self._dice.choice(kinds)
            try:
                async with asyncio.timeout(60):
                    await kind(self)
                self.done[kind.__name__] = self.done.get(kind.__name__, 0) + 1
            except Wrong as exc:
                self.wrong.append(f"{kind.__name__}: {exc}")
            except (OSError, EOFError, TimeoutError, websockets.WebSocketException) as exc:
                self.wrong.append(f"{kind.__name__}: the connection failed: {type(exc).__name__} {exc}")

    # What they share.

    def text(self, words: int = 4) -> str:
        self._count += 1
        return " ".join(f"{self.name}-{self._count}-{i}" for i in range(words))

    async def line(self, room: int = 0) -> Line:
        sock = socket.socket()
        if room:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self._port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=room or 2**22)
        return Line(reader, writer, self._key)

    async def post(self, line: Line, body: Any, path: str = "/v1/responses") -> Any:
        """The answer; a server that is busy is asked again, as it says."""
        while True:
            answer = await line.ask("POST", path, body)
            self._count_status(answer.status)
            if answer.status == 200:
                return answer.json
            if answer.status != 429 or "retry-after" not in answer.headers:
                raise Wrong(f"{answer.status} {answer.body[:300]!r}")
            await asyncio.sleep(0.1)

    def _count_status(self, status: int) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1

    async def events(self, line: Line) -> AsyncIterator[dict[str, Any]]:
        """The events of the stream that was asked for."""
        status, headers = await line.head()
        self._count_status(status)
        if status != 200:
            raise Wrong(f"a stream began with {status}")
        rest, number, done = b"", 0, False
        async for piece in line.pieces(headers):
            *frames, rest = (rest + piece).split(b"\n\n")
            for frame in frames:
                if frame.startswith(b":"):
                    continue
                data = frame.partition(b"data: ")[2]
                if done:
                    raise Wrong("something came after the end")
                if data == b"[DONE]":
                    done = True
                    continue
                event = json.loads(data)
                if event.get("sequence_number", number) != number:
                    raise Wrong(f"event {number} has the number {event['sequence_number']}")
                number += 1
                yield event
        if not done:
            raise Wrong("the stream has no end")


def check(heard: str, told: str) -> None:
    if heard != told:
        raise Wrong(f"told {told!r}, heard {heard[:200]!r}")


def said(response: Any) -> str:
    if response["status"] != "completed":
        raise Wrong(f"a response is {response['status']}: {response['error']}")
    return "".join(part["text"] for item in response["output"] for part in item.get("content") or ())


# What clients do.


async def json_answer(self: Client) -> None:
    line = await self.line()
    for _ in range(3):
        text = self.text()
        check(said(await self.post(line, {"input": text, "store": self._dice.random() < 0.5})), text)
    line.writer.close()


async def sse(self: Client) -> None:
    line = await self.line()
    for _ in range(2):
        text = self.text()
        line.send("POST", "/v1/responses", {"input": text, "stream": True})
        heard, last = "", {}
        async for event in self.events(line):
            if event["type"] == "response.output_text.delta":
                heard += event["delta"]
            last = event
        check(heard, text)
        check(said(last["response"]), text)
    line.writer.close()


async def chat(self: Client) -> None:
    line, text = await self.line(), self.text()
    body = {"messages": [{"role": "user", "content": text}]}
    answer = await self.post(line, body, "/v1/chat/completions")
    check(answer["choices"][0]["message"]["content"], text)
    line.send("POST", "/v1/chat/completions", {**body, "stream": True})
    deltas = [choice["delta"].get("content") or "" async for event in self.events(line) for choice in event["choices"]]
    check("".join(deltas), text)
    line.writer.close()


async def chained(self: Client) -> None:
    line = await self.line()
    texts: list[str] = []
    previous = None
    for _ in range(3):
        texts.append(self.text())
        answer = await self.post(line, {"input": texts[-1], "previous_response_id": previous})
        check(said(answer), " | ".join(texts))
        previous = answer["id"]
    line.writer.close()


async def with_a_tool(self: Client) -> None:
    line, asked, told = await self.line(), self.text(), self.text()
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    answer = await self.post(line, {"input": asked, "tools": tools})
    (call,) = answer["output"]
    output = [{"type": "function_call_output", "call_id": call["call_id"], "output": told}]
    check(said(await self.post(line, {"input": output, "previous_response_id": answer["id"]})), f"{asked} | {told}")
    line.writer.close()


async def in_the_background(self: Client) -> None:
    line, text = await self.line(), self.text(40)
    queued = await self.post(line, {"input": text, "background": True})
    path = f"/v1/responses/{queued['id']}"
    if self._dice.random() < 0.5:
        status = (await line.ask("POST", f"{path}/cancel")).json["status"]
        if status not in ("cancelled", "completed"):
            raise Wrong(f"what was cancelled is {status}")
    else:
        while (answer := (await line.ask("GET", path)).json)["status"] in ("queued", "in_progress"):  # noqa: ASYNC110  # polls
            await asyncio.sleep(0.05)
        check(said(answer), text)
        if (await line.ask("DELETE", path)).status != 200:
            raise Wrong("it could not be deleted")
    line.writer.close()


async def over_a_socket(self: Client) -> None:
    uri, headers = f"ws://127.0.0.1:{self._port}/v1/responses", {"authorization": f"Bearer {self._key}"}
    async with websockets.connect(uri, additional_headers=headers, proxy=None, compression=None) as sock:
        texts: list[str] = []
        previous = None
        for _ in range(2):
            texts.append(self.text())
            body = {"input": texts[-1], "previous_response_id": previous, "store": False}
            await sock.send(json.dumps({"type": "response.create", **body}))
            while (event := json.loads(await sock.recv()))["type"] not in ENDS:
                pass
            if "response" not in event:
                raise Wrong(f"a socket said {event}")
            check(said(event["response"]), " | ".join(texts))
            previous = event["response"]["id"]


async def leaving(self: Client) -> None:
    """A reset in the middle: of a body, of an answer that is awaited, of a stream."""
    line, text = await self.line(), self.text(40)
    match self._dice.randrange(3):
        case 0:
            line.send("POST", "/v1/responses", b'{"input": ', **{"content-length": "100000"})
            await line.writer.drain()
        case 1:
            line.send("POST", "/v1/responses", {"input": text})
            await asyncio.sleep(0.01)
        case _:
            line.send("POST", "/v1/responses", {"input": text, "stream": True})
            async for event in self.events(line):
                if event["type"].endswith("delta"):
                    break
    line.cut()


async def reading_slowly(self: Client) -> None:
    line, text = await self.line(room=4096), self.text(30)
    line.send("POST", "/v1/responses", {"input": text, "stream": True})
    heard = ""
    async for event in self.events(line):
        if event["type"].endswith("delta"):
            heard += event["delta"]
            await asyncio.sleep(0.01)
    check(heard, text)
    line.writer.close()


DEEP = b'{"input": "x", "metadata": ' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"}"
BAD: list[tuple[Any, int]] = [
    (b"", 400),
    (b"{", 400),
    (b"\xff", 400),
    (b"[]", 400),
    (DEEP, 400),
    ({"input": 5}, 400),
    ({"input": []}, 400),
    ({"input": [{"type": "nothing"}]}, 400),
    ({"input": "x", "temperature": "hot"}, 400),
    ({"input": "x", "previous_response_id": "resp_gone"}, 400),
    ({"input": "x", "tool_choice": "required"}, 400),
    (
        {"input": "x", "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": 5}}}, "stream": True},
        400,
    ),
    ({"input": "x", "background": True, "store": False}, 400),
    ({"input": [{"type": "function_call_output", "call_id": "none", "output": "x"}]}, 400),
]


async def wrongly(self: Client) -> None:
    """Bad input of many kinds; each is told what is wrong with it."""
    line = await self.line()
    body, status = self._dice.choice(BAD)
    match self._dice.randrange(5):
        case 0:
            answer, status = await line.ask("POST", "/v1/responses", {"input": "x"}, authorization="Bearer no"), 401
        case 1:
            answer, status = await line.ask("GET", "/v1/responses/resp_gone"), 404
        case 2:
            answer, status = await line.ask("POST", "/v1/responses", b"x", **{"content-type": "text/plain"}), 415
        case _:
            answer = await line.ask("POST", "/v1/responses", body)
    self._count_status(answer.status)
    error = answer.json["error"]
    if answer.status != status or not all(isinstance(error[key], str) for key in ("message", "type", "param", "code")):
        raise Wrong(f"{answer.status} for {body!r:.100}: {answer.body[:200]!r}")
    line.writer.close()


KINDS: dict[Callable[[Client], Awaitable[None]], int] = {
    json_answer: 6,
    sse: 6,
    chat: 3,
    chained: 3,
    with_a_tool: 2,
    in_the_background: 2,
    over_a_socket: 3,
    leaving: 4,
    reading_slowly: 2,
    wrongly: 4,
}


async def all_at_once(
    port: int, keys: list[str], clients: int, seconds: float, seed: int, think: float
) -> list[Client]:
    """All clients until the time is over; each ends what it is at."""
    people = [Client(port, keys[i % len(keys)], f"c{i}", random.Random(seed + i), think) for i in range(clients)]
    until = asyncio.get_running_loop().time() + seconds
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*(one.run(until) for one in people))
    return people
