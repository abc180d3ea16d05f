"""The application: what it loads, and that its short way is the framework's way."""

import subprocess
import sys

import pytest

from support.raw import Request, ask, post
from support.serving import serving

BODY = {"input": "hi"}


def test_serving_a_model_loads_no_library_that_it_does_not_use() -> None:
    code = (
        "import sys\n"
        "from mellea_responses.http.app import create_app\n"
        "from mellea_responses.program import Silent\n"
        "create_app(Silent())\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    modules = set(loaded.stdout.split())
    assert "litestar" in modules
    assert not modules & {"pydantic", "mellea", "torch", "cryptography", "jsonschema_rs"}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/", "//v1/responses"])
async def test_every_spelling_of_the_path_gives_the_same_answer(path: str) -> None:
    async with serving(lambda turn: "hello") as url:
        whole = await post(url, BODY, path)
        streamed = await post(url, {**BODY, "stream": True}, path)
        refused = await post(url, {"input": 5}, path)

    assert whole.status == 200
    assert whole.json["output"][0]["content"][0]["text"] == "hello"
    assert streamed.body.endswith(b"data: [DONE]\n\n")
    assert refused.status == 400
    assert refused.error["param"] == "input"


async def test_a_named_origin_is_told_that_it_may_read_and_another_is_refused() -> None:
    async with serving(lambda turn: "hello", cors_origins=("https://app.example",)) as url:
        headers = {"content-type": "application/json"}
        answers = [
            await ask(url, Request("POST", "/v1/responses", b'{"input":"x"}', {**headers, "origin": origin}))
            for origin in ("https://app.example", "https://evil.example")
        ]

    assert [answer.status for answer in answers] == [200, 403]
    assert answers[0].headers["access-control-allow-origin"] == "https://app.example"
    assert "access-control-allow-origin" not in answers[1].headers
