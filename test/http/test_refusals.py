"""Every request that is answered with an error leaves one line in the log, under the id that the client got."""

import re
from pathlib import Path
from typing import Any

import pytest
import websockets

from mellea_responses.errors import InvalidRequest
from support.raw import Request, ask, posting
from support.serving import process, serving

KEYS: dict[str, Any] = {"api_keys": ("ada=a-key-of-ada",)}
WITH_KEY = {"authorization": "Bearer a-key-of-ada"}
LINE = re.compile(r"error status=(\d+) code=(\S+) owner=(\S+) request=(req_\w+)")


def echo(input: Any) -> str:
    if input[-1].content == "fail":
        raise InvalidRequest("No.", code="no\nstatus=200 way")
    return str(input[-1].content)


def errors(caplog: pytest.LogCaptureFixture) -> list[tuple[str | Any, ...]]:
    return [found.groups() for record in caplog.records if (found := LINE.fullmatch(record.getMessage()))]


@pytest.mark.parametrize(
    ("request_", "status", "code", "owned"),
    [
        (posting({"input": "hi"}), 401, "invalid_api_key", False),
        (posting({"input": "hi"}, host="evil.example", **WITH_KEY), 403, "forbidden", False),
        (Request("GET", "/nowhere", headers=WITH_KEY), 404, "route_not_found", True),
        (Request("GET", "/v1/responses/resp_1", headers=WITH_KEY), 404, "response_not_found", True),
        (posting({"input": 5}, **WITH_KEY), 400, "invalid_request", True),
        (posting({"input": "fail"}, **WITH_KEY), 400, "no_status=200_way", True),
        (posting({"messages": 5}, "/v1/chat/completions", **WITH_KEY), 400, "invalid_request", True),
    ],
)
async def test_an_error_has_its_line(
    request_: Request, status: int, code: str, owned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="mellea_responses.access")
    async with serving(echo, **KEYS) as url:
        answer = await ask(url, request_)

    assert answer.status == status
    [(logged, named, owner, request_id)] = errors(caplog)
    assert (int(logged), named, owner != "-") == (status, code, owned)
    assert request_id == answer.headers["x-request-id"]


async def test_a_refused_upgrade_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="mellea_responses.access")
    async with serving(echo, **KEYS) as url:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with websockets.connect(f"{url.replace('http', 'ws', 1)}/v1/responses"):
                pass

    assert errors(caplog) == [("401", "invalid_api_key", "-", refused.value.response.headers["x-request-id"])]


async def test_the_log_of_a_server_says_why_it_refused_and_nothing_else_does(tmp_path: Path) -> None:
    program = tmp_path / "echo.py"
    program.write_text("def serve(turn):\n    return 'yes'\n")
    async with process(program) as server:
        for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
            with pytest.raises(websockets.InvalidStatus):
                async with websockets.connect(
                    f"{server.url.replace('http', 'ws', 1)}/v1/responses", additional_headers=headers
                ):
                    pass
        answer = await ask(server.url, Request("GET", "/", headers={"x": "y" * 70_000}))
        assert answer.status == 431
        async with websockets.connect(f"{server.url.replace('http', 'ws', 1)}/v1/responses") as socket:
            await socket.send(b"no text: \xff", text=True)
            with pytest.raises(websockets.ConnectionClosedError):
                await socket.recv()
        server.signal("SIGTERM")
        await server.wait(10)

    assert [found[1] for line in server.log if (found := LINE.search(line))] == ["403", "403", "431"]
    assert not [line for line in server.log if "uvicorn" in line]


async def test_errors_are_counted_by_status() -> None:
    async with serving(echo, metrics=True) as url:
        for body in ({"input": 5}, {"input": "fail"}, {"input": []}):
            await ask(url, posting(body))
        page = (await ask(url, Request("GET", "/metrics"))).body.decode()

    assert 'mellea_responses_errors_total{status="400"} 3.0' in page
