"""What reaches a model through its chat template, and what a model's limits and failures look like."""

import asyncio
import inspect
import re

from cases.checks.registry import check
from cases.checks.vocabulary import errors
from cases.model import ModelStandIn
from cases.play import Played

from mellea_responses.http import keys
from mellea_responses.media.remote import Fetcher
from support.raw import Request, ask, post
from support.serving import build_app, running


def prompts(played: Played) -> list[str]:
    """What the chat template made of each conversation."""
    assert isinstance(played.program, ModelStandIn)
    return played.program.prompts


@check("The template is given at most one system block, first.")
def _(played: Played) -> None:
    assert len(prompts(played)) == 2
    for prompt in prompts(played):
        assert prompt.startswith("<|im_start|>system\n")
        assert prompt.count("<|im_start|>system\n") == 1


@check("Both texts are in it, instructions first.")
def _(played: Played) -> None:
    first, second = (prompt.partition("<|im_end|>")[0] for prompt in prompts(played))

    assert re.search(r"You are a pilot\.\s+Be brief\.", first)
    assert "One word." in second


@check("Turn 1: the template saw a mapping.")
def _(played: Played) -> None:
    assert "(harbour=Bray)" in prompts(played)[0]


@check("Turn 2: cut JSON gives no 500.")
def _(played: Played) -> None:
    assert played.answers[1].status in {200, 400}


@check("The message is short and holds no template source.")
def _(played: Played) -> None:
    for error in errors(played):
        assert len(error["message"]) < 300
        assert not re.search(r"\{%|\{\{|raise_exception|jinja|im_start", error["message"], re.IGNORECASE)


@check("The third request works (no lock is left held).")
def _(played: Played) -> None:
    assert played.answers[2].json["status"] == "completed"


@check("error.code is context_length_exceeded and param is input.")
def _(played: Played) -> None:
    assert [(error["code"], error["param"]) for error in errors(played)] == [("context_length_exceeded", "input")] * 2


@check("Nothing was generated; text was not dropped in silence.")
def _(played: Played) -> None:
    assert prompts(played) == []


@check("Each answer equals the one the same prompt gives alone.")
async def _(played: Played) -> None:
    for body, together in zip(_bodies(played), played.answers, strict=True):
        alone = await post(played.url, body)
        assert alone.json["output"][0]["content"] == together.json["output"][0]["content"]


def _bodies(played: Played) -> list[dict[str, object]]:
    return [one["body"] for one in played.case["request"]["parallel"]]


@check("No answer holds another prompt's token.")
def _(played: Played) -> None:
    for number, answer in enumerate(played.answers):
        assert not set(re.findall(r"token-\d\d", str(answer.json["output"]))) - {f"token-{number:02}"}


@check("A canary listener on loopback gets no connection.")
def _(played: Played) -> None:
    assert played.canary == []


@check("No file is opened.")
def _(played: Played) -> None:
    assert "file:///etc/hostname" not in played.answers[1].body.decode()
    assert played.answers[3].error["type"] == "not_found_error"


@check("If fetching is switched on, hosts are checked on every hop and after name lookup.")
async def _(_: Played) -> None:
    """127.0.0.2 plays an allowed host that redirects to a canary; a name stands for the canary in the end."""
    touched: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        address, port = writer.get_extra_info("sockname")
        touched.append(address)
        writer.write(f"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{port}/\r\ncontent-length: 0\r\n\r\n".encode())
        writer.close()

    async def resolve(name: str, _port: int) -> list[str]:
        return ["127.0.0.2"] if name == "allowed.example" else ["127.0.0.1"]

    allowed = await asyncio.start_server(answer, "127.0.0.2", 0)
    port = allowed.sockets[0].getsockname()[1]
    canary = await asyncio.start_server(answer, "127.0.0.1", port)
    app = build_app(lambda input: "ok", allow_remote_images=True)
    app.state.service.reader.fetcher = Fetcher(resolve, lambda address: str(address) == "127.0.0.2", {port})
    async with allowed, canary, running(app) as url:
        for host in ("allowed.example", "inner.example", "127.0.0.1", "localhost"):
            part = {"type": "input_image", "image_url": f"http://{host}:{port}/a.png"}
            refused = await post(url, {"input": [{"role": "user", "content": [part]}]})
            assert (refused.status, refused.error["param"]) == (400, "input[0].content[0]")

    assert touched == ["127.0.0.2"]


# ---------------------------------------------------------------- background


@check("After cancel the status is cancelled and stays so.")
def _(played: Played) -> None:
    assert played.answers[1].json["status"] == "cancelled"
    assert played.answers[2].json == played.answers[1].json


@check("A second cancel is harmless.")
def _(played: Played) -> None:
    assert played.answers[3].json == played.answers[1].json


@check("Cancel of a foreground response is 400.")
def _(played: Played) -> None:
    assert played.answers[5].status == 400


@check("If background is not offered: one 400 naming background at the first step.")
def _(played: Played) -> None:
    """It is offered."""
    assert played.answers[0].json["background"] is True


# ---------------------------------------------------------------- keys


@check("401 bodies have the error shape.")
def _(played: Played) -> None:
    refused = [answer for answer in played.answers if answer.status == 401]

    assert {answer.error["code"] for answer in refused} == {"invalid_api_key"}
    assert {answer.error["type"] for answer in refused} == {"authentication_error"}


@check("Path variants do not get round the check.")
async def _(played: Played) -> None:
    variants = ["/v1//responses", "/V1/responses", "/v1/./responses", "/%76%31/responses", "/responses", "//responses"]
    answers = await asyncio.gather(*(post(played.url, {"input": "x"}, path) for path in variants))

    assert {answer.status for answer in answers} <= {401, 404}
    assert not played.program.received


@check("Walk the route table: only listed routes are open.")
async def _(played: Played) -> None:
    open_routes = set()
    for route in played.app.routes:
        for method in sorted({"GET", "POST", "DELETE"} & set(getattr(route, "methods", ()))):
            path = re.sub(r"\{[^}]*\}", "x", route.path)
            if (await ask(played.url, Request(method, path))).status != 401:
                open_routes.add((method, route.path))
    assert open_routes <= {("GET", "/health"), ("GET", "/ready")}


@check("Keys are compared in constant time.")
def _(played: Played) -> None:
    """Timing on a busy machine proves nothing, so this reads the one module that sees keys."""
    source = inspect.getsource(keys)

    assert re.search(r"compare_digest|hmac|blake2|sha256", source)
