"""What no answer and no line of the log may hold, looked for after every kind of failure.

Canaries are planted wherever words are: in the environment, in what the program raises, in each part of a request that
carries somebody's data, and with another owner. Then everything fails, and everything that left the server is read.
"""

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import websockets

from mellea_responses.http.app import create_app
from mellea_responses.program.user import UserProgram
from mellea_responses.settings import Settings
from mellea_responses.store import MemoryStore
from mellea_responses.turn import Turn
from support import oracle
from support.raw import Answer, Request, ask, posting
from support.serving import Process, process, running

Json = dict[str, Any]
PROGRAM = Path(__file__).with_name("leaky.py")

ADA, GRACE = "key-canary-of-ada-0123", "key-canary-of-grace-4567"
ENVIRONMENT = "environment-canary"
OTHERS = "the-other-owner-s-canary"
EXCEPTION = "the-words-of-the-exception"
TEXT, INSTRUCTIONS = "text-canary", "instructions-canary"
FIELDS = {
    "instructions": INSTRUCTIONS,
    "user": "user-canary",
    "safety_identifier": "safety-canary",
    "prompt_cache_key": "cache-key-canary",
    "metadata": {"m": "metadata-canary"},
}
HEADERS = {
    "authorization": f"Bearer {GRACE}",
    "user-agent": "agent-canary/1",
    "x-client-metadata": "header-canary",
    "cookie": "session=cookie-canary",
    "openai-organization": "organization-canary",
    "session_id": "session-canary",
    "referer": "http://localhost/referer-canary",
}
IMAGE = base64.b64encode(b"image-canary, which is no picture").decode()
OWN = [TEXT, INSTRUCTIONS, *(f"{name}-canary" for name in ("user", "safety", "cache-key", "metadata")), IMAGE]
"""What a client says itself: it may read some of it again, the log may not."""
SENT = [f"{name}-canary" for name in ("agent", "header", "cookie", "organization", "session", "referer")]
INSIDE = [ENVIRONMENT, EXCEPTION, OTHERS, ADA, GRACE, "Traceback", "site-packages", ".py", "RuntimeError", "KeyError"]
"""What no client may read."""

FAILS = ["first", "late", "chained", "call", "twice", "receipt", "step", "time", "check", "arguments"]
TIDE = {
    "type": "function",
    "name": "tide",
    "strict": True,
    "parameters": {"type": "object", "properties": {"of": {"type": "string"}}},
}
FORM = {"format": {"type": "json_schema", "name": "n", "strict": True, "schema": {"type": "object"}}}


def bodies(others: str) -> Iterator[Json]:
    """Requests that fail, each in its own way, full of canaries; `others` is another owner's response."""
    for way in FAILS:
        tools = {"tools": [TIDE]} if way in ("twice", "arguments") else {}
        yield {"input": f"fail-{way} {TEXT}", **tools}
        yield {"input": f"fail-{way} {TEXT}", "stream": True, **tools}
    yield {"input": TEXT, "text": FORM}
    yield {"input": TEXT, "tools": [TIDE], "tool_choice": "required"}
    yield {"input": TEXT, "previous_response_id": others}
    yield {"input": [{"type": "item_reference", "id": others}], "stream": True}
    yield {"input": [{"role": "boss", "content": TEXT}]}
    yield {"input": [{"type": TEXT}]}
    yield {"input": {"x": TEXT}}
    yield {"input": TEXT, "temperature": TEXT}
    yield {"input": TEXT, "tools": [{"type": "function", "name": TEXT * 20}]}
    yield {"input": TEXT, "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": TEXT}}}}
    yield {"input": TEXT, "text": {"format": {"type": "json_schema", "name": "n", "schema": {"$ref": f"#/{TEXT}"}}}}
    yield {"input": TEXT, "chat_template_kwargs": {"chat_template": TEXT}}
    yield {"input": TEXT, "background": True, "store": False}
    yield {"input": [{"type": "function_call_output", "call_id": TEXT, "output": TEXT}]}
    yield {
        "input": [{"type": "reasoning", "encrypted_content": TEXT}, {"role": "user", "content": f"fail-first {TEXT}"}]
    }
    for url in (f"data:image/png;base64,{IMAGE}", f"file:///{TEXT}", f"http://127.0.0.1:1/{TEXT}"):
        picture = {"type": "input_image", "image_url": url}
        yield {"input": [{"role": "user", "content": [picture, {"type": "input_text", "text": TEXT}]}]}
    yield {"input": [{"role": "user", "content": [{"type": "input_file", "file_data": IMAGE, "filename": TEXT}]}]}


def requests(others: str) -> Iterator[Request]:
    """The same in both protocols, and what is no request at all."""
    for body in bodies(others):
        yield posting({**body, **FIELDS}, **HEADERS)
        if isinstance(body["input"], str):
            tools = [{"type": "function", "function": {**TIDE}}] if "tools" in body else []
            messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": body["input"]}]
            chat: Json = {"messages": messages, "stream": body.get("stream", False), "user": "user-canary"}
            yield posting(chat | ({"tools": tools} if tools else {}), "/v1/chat/completions", **HEADERS)
    kind = {"content-type": "application/json"}
    for content in (f'{{"input": "{TEXT}', f'["{TEXT}"]', TEXT, f'{{"input": "\\ud83d {TEXT}"}}'):
        yield Request("POST", "/v1/responses", content.encode(), HEADERS | kind)
        yield Request("POST", "/v1/chat/completions", content.encode(), HEADERS | kind)
        yield Request("POST", "/v1/conversations", content.encode(), HEADERS | kind)
    yield Request("POST", "/v1/responses", TEXT.encode(), HEADERS | kind | {"content-encoding": "gzip"})
    yield Request("POST", "/v1/responses", TEXT.encode(), HEADERS | {"content-type": "text/plain"})
    yield Request("POST", "/v1/responses", b"{}", HEADERS | kind | {"authorization": "Bearer wrong-key-canary"})
    yield Request("POST", "/v1/responses", b"{}", HEADERS | kind | {"origin": f"http://{TEXT}.example"})
    yield Request("POST", "/v1/responses", b"{}", HEADERS | kind | {"host": f"{TEXT}.example"})
    for method, path in (
        ("GET", f"/v1/responses/{others}"),
        ("DELETE", f"/v1/responses/{others}"),
        ("POST", f"/v1/responses/{others}/cancel"),
        ("GET", f"/v1/{TEXT}?{TEXT}={TEXT}"),
        ("PUT", f"/v1/responses?{TEXT}"),
        ("GET", f"/v1/responses/{TEXT}?stream={TEXT}"),
        ("GET", f"/v1/models/{TEXT}"),
    ):
        yield Request(method, path, headers=HEADERS)


FRAMES = [
    "no json text-canary",
    '{"type": "text-canary"}',
    '{"type": "response.create", "input": 5, "instructions": "instructions-canary"}',
    '{"type": "response.create", "input": "fail-first text-canary", "user": "user-canary"}',
    '{"type": "response.create", "input": "fail-late text-canary", "store": false}',
    '{"type": "response.create", "input": "text-canary", "previous_response_id": "text-canary"}',
    '{"type": "response.steer", "input": "text-canary"}',
]


async def fail_on_a_socket(url: str) -> list[str]:
    """Every message of a socket on which everything fails; at its end it is torn."""
    heard: list[str] = []
    headers = {name: value for name, value in HEADERS.items() if name != "user-agent"}
    async with websockets.connect(url.replace("http", "ws") + "/v1/responses", additional_headers=headers) as socket:
        for frame in FRAMES:
            await socket.send(frame)
            while not heard or json.loads(heard[-1])["type"] not in (
                "error",
                "response.failed",
                "response.steer.failed",
            ):
                heard.append(str(await socket.recv()))
            heard.append('{"type": ""}')
        await socket.send(b"\xff\xfe text-canary")
        await socket.send('{"type": "response.create", "input": "fail-time text-canary"}')
        socket.transport.abort()
    return heard


async def leave(url: str) -> None:
    """Clients that go away in the middle of a body and of an answer."""
    host, port = url.removeprefix("http://").split(":")
    for body, told in ((b'{"input": "text-canary', 5000), (b'{"input": "fail-time text-canary", "stream": true}', 0)):
        _, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {GRACE}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {told or len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        await asyncio.sleep(0.2)
        writer.transport.abort()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Process]:
    async with started(tmp_path) as one:
        yield one


def started(folder: Path, *options: str) -> Any:
    """A server of two owners, as its owner starts it."""
    file = folder / "keys"
    file.write_text(f"ada={ADA}\n")
    file.chmod(0o600)
    environment = {"CANARY": ENVIRONMENT, "MELLEA_RESPONSES_API_KEYS": f"grace={GRACE}"}
    return process(PROGRAM, "--api-key-file", str(file), "--step-timeout", "1", *options, env=environment)


async def everything_fails(url: str) -> list[tuple[Request, Answer]]:
    mine = posting({"input": OTHERS}, authorization=f"Bearer {ADA}")
    others = (await ask(url, mine)).json["id"]
    return [(request, await ask(url, request)) for request in requests(others)]


@pytest.mark.timeout(110)
async def test_no_failure_tells_what_is_inside_and_no_line_of_the_log_what_clients_said(server: Process) -> None:
    answers = await everything_fails(server.url)
    messages = await fail_on_a_socket(server.url)
    await leave(server.url)
    server.signal("SIGTERM")
    await server.wait(20)
    log = "".join(server.log)

    failed = 0
    for request, answer in answers:
        said = answer.body.decode() + json.dumps(answer.headers)
        assert not [word for word in INSIDE if word in said], (request, said)
        assert not [word for word in SENT if word in said], (request, said)
        failed += answer.status >= 400 or "response.failed" in said or '"error":{"message"' in said
        if answer.status >= 400:
            oracle.check_error(answer.json)
            assert len(answer.body) < 4096
    assert failed > 60
    assert not [word for word in [*INSIDE, *SENT] if word in "".join(messages)]
    held = [*OWN, *SENT, ADA, GRACE, OTHERS, "wrong-key-canary", "session=", "data:image"]
    assert not [word for word in held if word in log], log[-3000:]

    # What its owner is to read is there, under the id that the client got.
    assert EXCEPTION in log
    whole = [answer for request, answer in answers if b"fail-first" in request.content and answer.status == 500]
    assert whole
    assert not [answer.headers["x-request-id"] for answer in whole if answer.headers["x-request-id"] not in log]


@pytest.mark.timeout(60)
async def test_only_the_switch_for_bodies_writes_them_and_never_keys_or_headers(tmp_path: Path) -> None:
    async with started(tmp_path, "--log-bodies") as server:
        await ask(server.url, posting({"input": TEXT, **FIELDS}, **HEADERS))
        await ask(server.url, posting({"input": f"fail-first {TEXT}"}, **HEADERS))
        server.signal("SIGTERM")
        await server.wait(20)
        log = "".join(server.log)

    assert TEXT in log
    assert INSTRUCTIONS in log
    assert not [word for word in [*SENT, ADA, GRACE] if word in log]


def shown(server: Process) -> str:
    return Path(f"/proc/{server.process.pid}/cmdline").read_bytes().decode()


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="what others see of a process is read from /proc")
async def test_keys_of_file_and_environment_are_not_in_the_list_of_processes(server: Process) -> None:
    seen = shown(server)

    assert "api-key-file" in seen
    assert ADA not in seen
    assert GRACE not in seen
    assert not [word for word in (ADA, GRACE) if word in "".join(server.log)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--api-key", "ada=canary-1", "--api-key", "grace=canary-1"], "'ada' and 'grace'"),
        (["--api-key", "ada="], "a name without a key"),
        (["--api-key", "canary with blanks"], "blanks"),
        (["--api-key-file", "/nowhere/keys"], "/nowhere/keys cannot be read"),
        (["--cors-origin", "*"], "names no origin"),
        (["--host", "192.0.2.1"], "nobody would need a key"),
        (["--seal-key", "/nowhere/seal"], "/nowhere/seal"),
    ],
)
async def test_a_start_that_would_be_unsafe_is_refused_in_one_line(options: list[str], said: str) -> None:
    with pytest.raises(AssertionError, match="the server ended") as ended:
        async with process(PROGRAM, *options):
            pass

    lines = str(ended.value).splitlines()[1:]
    assert said in lines[-1]
    assert lines[-1].startswith("mellea-responses: ")
    assert not [line for line in lines if "Traceback" in line or "canary" in line]


class Broken(MemoryStore):
    """A store that fails when it is asked, with words of its own."""

    async def put(self, *_: Any, **__: Any) -> None:
        raise RuntimeError(f"{EXCEPTION}: postgres://user:password@inner-host/{TEXT}")

    async def get(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{EXCEPTION}: postgres://user:password@inner-host")

    delete = find_item = find_call = get


async def test_a_store_that_fails_tells_nothing_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings()
    program = UserProgram(serve=lambda turn: "said", settings=settings)
    app = create_app(program, settings, Broken(2**20, 10))
    with caplog.at_level(logging.INFO):
        async with running(app) as url:
            kept = await ask(url, posting({"input": "x"}))
            answers = [
                await ask(url, posting({"input": "x", "previous_response_id": "resp_x"})),
                await ask(url, posting({"input": "x", "previous_response_id": "resp_x", "stream": True})),
                await ask(url, posting({"input": [{"type": "item_reference", "id": "msg_x"}]})),
                await ask(url, Request("GET", "/v1/responses/resp_x")),
                await ask(url, Request("GET", "/v1/responses/resp_x?stream=true")),
                await ask(url, Request("DELETE", "/v1/responses/resp_x")),
            ]

            async with websockets.connect(url.replace("http", "ws") + "/v1/responses") as socket:
                for previous in ("resp_x", "resp_y"):
                    frame = {"type": "response.create", "input": "x", "previous_response_id": previous}
                    await socket.send(json.dumps(frame))
                    told = json.loads(await socket.recv())
                    assert (told["status"], told["error"]["code"]) == (500, "server_error")

    assert (kept.status, kept.json["store"]) == (200, False)
    for answer in answers:
        assert answer.status == 500
        oracle.check_error(answer.json)
        assert not [word for word in (EXCEPTION, "postgres", "inner-host") if word in answer.body.decode()]
        assert answer.headers["x-request-id"] in caplog.text


@pytest.mark.parametrize(
    "kind", [KeyboardInterrupt, SystemExit, BaseException, RecursionError, MemoryError, UnicodeError]
)
async def test_whatever_a_program_raises_is_one_plain_failure(kind: type[BaseException]) -> None:
    async def serve(turn: Turn) -> str:
        raise kind(f"{EXCEPTION} at /srv/secret.pem")

    app = create_app(UserProgram(serve=serve), Settings())
    async with running(app) as url:
        answers = [await ask(url, posting({"input": "x", "stream": stream})) for stream in (False, True)]
        with suppress(websockets.ConnectionClosed):
            async with websockets.connect(url.replace("http", "ws") + "/v1/responses") as socket:
                await socket.send('{"type": "response.create", "input": "x"}')
                heard = [await socket.recv() for _ in range(4)]

    for said in (*(answer.body.decode() for answer in answers), *map(str, heard)):
        assert EXCEPTION not in said
        assert "secret.pem" not in said
    assert answers[0].status == 500
    assert answers[1].events[-1]["type"] == "response.failed"
