"""The servers under measurement, each in a process of its own: `python -m benchmarks.http_apps NAME [FILE]`.

All run under uvicorn exactly as our command runs it. FILE holds an answer of ours for the references to repeat.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn

WORDS = "The quick brown fox jumps over the lazy dog and runs away."
EVENTS = 200
DELTAS = EVENTS - 8  # the opening and closing events are the other eight
PACE = 0.001


# References.


async def _read_body(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


async def _lifespan(receive: Any, send: Any) -> None:
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


def bare(answer: bytes) -> Any:
    """No framework: the ready bytes."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await _lifespan(receive, send)
        await _read_body(receive)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return app


def bare_stream(answer: bytes, pace: float = 0) -> Any:
    """No framework: the ready bytes, a write for each event."""
    frames = [frame + b"\n\n" for frame in answer.split(b"\n\n") if frame]
    headers = [(b"content-type", b"text/event-stream")]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await _lifespan(receive, send)
        await _read_body(receive)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for frame in frames:
            if pace and b'.delta"' in frame:
                await asyncio.sleep(pace)
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


def bare_litestar(answer: bytes) -> Any:
    """Litestar and msgspec, typed in, one object out, and nothing between."""
    import msgspec
    from litestar import Litestar, Response, post
    from litestar.params import RawBody

    class Request(msgspec.Struct):
        input: str
        model: str | None = None
        stream: bool = False

    decode, encode = msgspec.json.Decoder(Request).decode, msgspec.json.Encoder().encode
    value = msgspec.json.decode(answer)

    @post("/v1/responses", status_code=200)
    async def create(body: RawBody) -> Response[bytes]:
        decode(body)
        return Response(encode(value), media_type="application/json")

    return Litestar([create], openapi_config=None, logging_config=None)


# Ours.


class OnTheLoop:
    """Speaks as the built-in program does, from the loop that serves HTTP, and has no model."""

    name = "model"

    def __init__(self, *batches: Sequence[Any]) -> None:
        self._batches = batches

    async def check(self, turn: Any, owner: str) -> None:
        return None

    async def run(self, current: Any) -> AsyncIterator[Sequence[Any]]:
        for batch in self._batches:
            yield batch

    def close(self) -> None:
        pass


def builtin() -> Any:
    from mellea_responses.turn import Stop, Text, Usage

    return OnTheLoop([Text(WORDS), Usage(20, 12), Stop()])


def builtin_stream() -> Any:
    from mellea_responses.turn import Stop, Text, Usage

    return OnTheLoop([*[Text("word ")] * DELTAS, Usage(20, DELTAS), Stop()])


def user() -> Any:
    def serve(turn: Any) -> str:
        return WORDS

    return _program(serve)


def user_messages() -> Any:
    def serve(input: Any) -> str:
        return WORDS

    return _program(serve)


def user_stream() -> Any:
    def serve(turn: Any) -> Iterator[str]:
        yield from ["word "] * DELTAS

    return _program(serve)


def user_paced() -> Any:
    async def serve(turn: Any) -> AsyncIterator[str]:
        for _ in range(DELTAS):
            await asyncio.sleep(PACE)
            yield "word "

    return _program(serve)


def _program(serve: Any) -> Any:
    from mellea_responses.program.user import UserProgram
    from mellea_responses.settings import Settings

    return UserProgram(serve, settings=Settings())


REFERENCES = {
    "bare": bare,
    "bare-stream": bare_stream,
    "bare-paced": lambda answer: bare_stream(answer, PACE),
    "bare-litestar": bare_litestar,
}
PROGRAMS = {
    "builtin": builtin,
    "builtin-stream": builtin_stream,
    "user": user,
    "user-messages": user_messages,
    "user-stream": user_stream,
    "user-paced": user_paced,
}


def application(name: str, file: str | None) -> Any:
    if file is not None:
        return REFERENCES[name](Path(file).read_bytes())
    from mellea_responses.http.app import create_app
    from mellea_responses.server import configure_logging

    configure_logging()
    return create_app(PROGRAMS[name]())


def commands(*names: str, answer: Path | None = None) -> dict[str, list[str]]:
    """What starts these servers; references are given the `answer` that they repeat."""
    file = [str(answer)] if answer else []
    return {name: ["-m", "benchmarks.http_apps", name, *file] for name in names}


def protocols(name: str) -> dict[str, Any]:
    """As our command has them; the references have uvicorn's own."""
    if name in REFERENCES:
        return {"http": "httptools"}
    from mellea_responses.http.connections import protocols
    from mellea_responses.settings import Settings

    return protocols(Settings())


def main() -> None:
    app = application(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
    sock = socket.create_server(("127.0.0.1", 0))
    quiet: Any = {"log_config": None, "log_level": "warning", "access_log": False, "server_header": False}
    # Connections stay open while the others have their round.
    config = uvicorn.Config(app, loop="uvloop", timeout_keep_alive=120, **protocols(sys.argv[1]), **quiet)
    print("http://{}:{}".format(*sock.getsockname()), flush=True)
    uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
