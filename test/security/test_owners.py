"""Nobody gets at what is another's, and nobody learns that it is there.

Every id that one owner can hold is tried by another, on every route and in every field that takes one. The answer must
be the one for an id that never was: status, headers and body, the id alone aside.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import websockets
from engine.tiny import Readable, make_network, make_tokenizer
from litestar._asgi import asgi_router

from mellea_responses.engine.engine import Engine
from mellea_responses.program.builtin import ModelProgram
from mellea_responses.service import Service
from mellea_responses.turn import Call, CallArgs, CallEnd, Step, Text, Thought, Turn
from mellea_responses.wire.items import FunctionCallOutput, Message, Reasoning
from support.raw import Answer, Request, ask, posting
from support.serving import build_app, running

ADA, GRACE = "ada-has-a-long-key", "grace-has-another-one"
SECRET = "the-words-of-ada"
TOOL = {"type": "function", "name": "tide"}
Json = dict[str, Any]


def heard(turn: Turn) -> list[str]:
    """Everything that the program could tell anybody."""
    lines: list[str] = []
    for item in turn.items:
        match item:
            case Message():
                lines += [str(getattr(part, "text", part)) for part in item.content]
            case Reasoning():
                lines += [part.text for part in item.content or []]
            case FunctionCallOutput():
                lines.append(str(item.output))
            case _:
                lines.append(repr(item))
    return lines


class Program:
    """Thinks, calls the tool if there is one, else repeats everything it was given; waits when it is told to."""

    name = "program"

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def check(self, turn: Turn, owner: str) -> None: ...

    async def run(self, current: Any) -> AsyncIterator[list[Step]]:
        lines = heard(current.turn)
        if "wait" in lines:
            await self.release.wait()
        if current.turn.tools and not any(isinstance(item, FunctionCallOutput) for item in current.turn.items):
            yield [Thought(SECRET), Call("k", "tide"), CallArgs("k", "{}"), CallEnd("k")]
        else:
            yield [Thought(SECRET), Text(json.dumps(lines))]

    def close(self) -> None: ...


class Server:
    """A server with two owners."""

    def __init__(self, url: str, service: Service, program: Program) -> None:
        self.url, self.service, self.program = url, service, program

    async def asks(self, key: str, method: str, path: str, body: Json | None = None) -> Answer:
        headers = {"authorization": f"Bearer {key}"}
        if body is None:
            return await ask(self.url, Request(method, path, headers=headers))
        return await ask(self.url, posting(body, path, **headers))

    async def made(self, body: Json, path: str = "/v1/responses") -> Json:
        """What Ada's request gives."""
        answer = await self.asks(ADA, "POST", path, body)
        assert answer.status == 200, answer.body
        made: Json = answer.json
        return made


@asynccontextmanager
async def two_owners(**settings: Any) -> AsyncIterator[Server]:
    program = Program()
    app = build_app(program, api_keys=(f"ada={ADA}", f"grace={GRACE}"), **settings)
    async with running(app) as url:
        yield Server(url, app.state.service, program)
        program.release.set()


@dataclass
class Held:
    """Ids that Ada holds, and the like that nobody ever held."""

    response: str
    item: str
    call: str
    bare_call: str
    running: str
    conversation: str
    conversation_item: str
    locked: str

    def invented(self) -> "Held":
        """Another of each kind."""
        return Held(**{kind: re.sub(r"[0-9a-f]{8}$", "00000000", value) for kind, value in vars(self).items()})


async def everything(server: Server) -> Held:
    """One of everything that a client can own."""
    response = await server.made({"input": f"{SECRET} 1"})
    called = await server.made({"input": SECRET, "tools": [TOOL]})
    bare = await server.made({"input": SECRET, "tools": [TOOL], "store": False})
    background = await server.made({"input": "wait", "background": True})
    talk = await server.made({"items": [{"role": "user", "content": SECRET}]}, "/v1/conversations")
    items = await server.asks(ADA, "GET", f"/v1/conversations/{talk['id']}/items")
    locked = await server.made({}, "/v1/conversations")
    await server.made({"input": "wait", "background": True, "conversation": locked["id"]})
    return Held(
        response=response["id"],
        item=response["output"][-1]["id"],
        call=called["output"][-1]["call_id"],
        bare_call=bare["output"][-1]["call_id"],
        running=background["id"],
        conversation=talk["id"],
        conversation_item=items.json["data"][0]["id"],
        locked=locked["id"],
    )


def attempts(ids: Held) -> list[tuple[str, str, Json | None]]:
    """Every way to name somebody's id."""
    tried: list[tuple[str, str, Json | None]] = []
    for response in (ids.response, ids.running):
        path = f"/v1/responses/{response}"
        tried += [
            ("GET", path, None),
            ("GET", f"{path}?stream=true", None),
            ("GET", f"{path}?stream=true&starting_after=1", None),
            ("GET", f"{path}/input_items", None),
            ("GET", f"{path}/input_items?after={ids.item}", None),
            ("POST", f"{path}/cancel", None),
            ("DELETE", path, None),
            ("POST", "/v1/responses", {"input": "x", "previous_response_id": response}),
            ("POST", "/v1/responses", {"input": "x", "previous_response_id": response, "stream": True}),
            ("POST", "/v1/responses/compact", {"model": "m", "input": "x", "previous_response_id": response}),
            ("POST", "/v1/responses/input_tokens", {"input": "x", "previous_response_id": response}),
        ]
    for talk, item in ((ids.conversation, ids.conversation_item), (ids.locked, ids.conversation_item)):
        path = f"/v1/conversations/{talk}"
        new = {"items": [{"role": "user", "content": "x"}]}
        tried += [
            ("GET", path, None),
            ("POST", path, {"metadata": {}}),
            ("GET", f"{path}/items", None),
            ("GET", f"{path}/items?after={item}", None),
            ("POST", f"{path}/items", new),
            ("GET", f"{path}/items/{item}", None),
            ("DELETE", f"{path}/items/{item}", None),
            ("DELETE", path, None),
            ("POST", "/v1/responses", {"input": "x", "conversation": talk}),
            ("POST", "/v1/responses", {"input": "x", "conversation": {"id": talk}, "stream": True}),
        ]
    for item in (ids.item, ids.conversation_item, ids.response):
        reference = {"type": "item_reference", "id": item}
        tried.append(("POST", "/v1/responses", {"input": [reference, {"role": "user", "content": "x"}]}))
        tried.append(("POST", "/v1/conversations", {"items": [reference]}))
    for call in (ids.call, ids.bare_call):
        output = {"type": "function_call_output", "call_id": call, "output": "1"}
        tried.append(("POST", "/v1/responses", {"input": [output]}))
        tried.append(("POST", "/v1/responses", {"input": [output], "tools": [TOOL], "stream": True}))
        tool = {"role": "tool", "tool_call_id": call, "content": "1"}
        tried.append(("POST", "/v1/chat/completions", {"messages": [tool]}))
    return tried


def without_ids(answer: Answer, ids: Held) -> tuple[int, dict[str, str], str]:
    """An answer as it is for any id of its kind."""
    body = answer.body.decode()
    for kind, value in vars(ids).items():
        body = body.replace(value, f"<{kind}>")
    headers = {name: "" if name in ("date", "x-request-id") else value for name, value in answer.headers.items()}
    return answer.status, headers, body


async def test_another_s_id_looks_like_one_that_never_was_everywhere() -> None:
    async with two_owners() as server:
        theirs = await everything(server)
        invented = theirs.invented()
        assert not set(vars(theirs).values()) & set(vars(invented).values())

        for (method, path, body), (_, strange, other) in zip(attempts(theirs), attempts(invented), strict=True):
            found = without_ids(await server.asks(GRACE, method, path, body), theirs)
            missed = without_ids(await server.asks(GRACE, method, strange, other), invented)

            assert found == missed, (method, path, body)
            assert 400 <= found[0] < 500, (method, path, body, found)
            assert SECRET not in found[2]

        # And all of it is still Ada's.
        for path in (f"/v1/responses/{theirs.response}", f"/v1/conversations/{theirs.conversation}/items"):
            kept = await server.asks(ADA, "GET", path)
            assert kept.status == 200
            assert SECRET in kept.body.decode()
        assert (await server.asks(ADA, "GET", f"/v1/responses/{theirs.running}")).json["status"] == "in_progress"
        locked = await server.asks(ADA, "POST", "/v1/responses", {"input": "x", "conversation": theirs.locked})
        assert locked.status == 409


async def test_every_attempt_is_one_that_its_owner_may_make() -> None:
    """Or the test above could pass by asking nonsense."""
    async with two_owners() as server:
        ids = await everything(server)
        outcomes = []
        for method, path, body in attempts(ids):
            if method == "DELETE" or "/cancel" in path:
                continue  # the last acts on an id
            if ids.running in path and "stream" in path:
                continue  # waits for the end
            answer = await server.asks(ADA, method, path, body)
            outcomes.append((answer.status, method, path, body, answer.body[:200]))

    refused = [one for one in outcomes if one[0] not in (200, 409)]
    # What nobody may: count with a program that cannot, continue what runs, keep or name what is no item, and bare
    # outputs in chat, whose messages come whole.
    expected = {"cannot_count_tokens", "cannot be continued", "Only items themselves", "was not found", "not found in"}
    expected |= {"No tool call found", "after", "item_not_found", "background: true"}
    assert all(any(word in str(one[4]) for word in expected) for one in refused), refused
    assert len(outcomes) - len(refused) > 25


async def test_an_answer_for_another_s_id_is_looked_up_as_one_that_never_was() -> None:
    """Time can only differ where the way does: the same look-ups in the same order, for every attempt."""
    async with two_owners() as server:
        theirs = await everything(server)
        looked: list[str] = []
        for holder in (server.service.store, server.service.conversation_store, server.service.live):
            for name in ("get", "segment", "history", "find_item", "find_call", "delete", "save", "put"):
                if hasattr(holder, name):
                    _watch(holder, name, looked)
        for (method, path, body), (_, strange, other) in zip(
            attempts(theirs), attempts(theirs.invented()), strict=True
        ):
            ways = []
            for place, said in ((path, body), (strange, other)):
                looked.clear()
                await server.asks(GRACE, method, place, said)
                ways.append(list(looked))

            assert ways[0] == ways[1], (method, path, body)


async def test_no_path_is_remembered_for_whoever_asks_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is found again would be answered sooner: that somebody has asked for an id could be measured."""
    looked: list[str] = []
    inner = asgi_router.parse_path_to_route

    def watching(**asked: Any) -> Any:
        looked.append(asked["path"])
        return inner(**asked)

    monkeypatch.setattr(asgi_router, "parse_path_to_route", watching)
    async with two_owners() as server:
        path = f"/v1/responses/{(await server.made({'input': 'x'}))['id']}"
        for key in (ADA, ADA, GRACE):
            await server.asks(key, "GET", path)

    assert looked == [path] * 3


def _watch(holder: Any, name: str, looked: list[str]) -> None:
    inner = getattr(holder, name)

    def watching(*args: Any, **kwargs: Any) -> Any:
        found = inner(*args, **kwargs)
        looked.append(f"{type(holder).__name__}.{name}")
        return found

    setattr(holder, name, watching)


async def test_ids_that_two_owners_chose_alike_stay_apart() -> None:
    """Clients may name items and calls themselves."""
    mine = {"type": "message", "id": "msg_chosen", "role": "user", "content": "adas-own"}
    call = {"type": "function_call", "call_id": "call_chosen", "name": "tide", "arguments": '{"of":"adas-own"}'}
    output = {"type": "function_call_output", "call_id": "call_chosen", "output": "1"}
    async with two_owners() as server:
        for key, whose in ((ADA, "adas-own"), (GRACE, "graces-own")):
            items = json.loads(json.dumps([mine, call, output]).replace("adas-own", whose))
            assert (await server.asks(key, "POST", "/v1/responses", {"input": items})).status == 200
            await server.asks(key, "POST", "/v1/conversations", {"items": items})
        told = []
        for key in (ADA, GRACE):
            body = {"input": [{"type": "item_reference", "id": "msg_chosen"}, output]}
            told.append((await server.asks(key, "POST", "/v1/responses", body)).body.decode())

    assert "adas-own" in told[0]
    assert "graces-own" not in told[0]
    assert "graces-own" in told[1]
    assert "adas-own" not in told[1]


async def test_two_keys_of_one_name_share_and_two_names_do_not() -> None:
    app = build_app(Program(), api_keys=("ada=the-old-key-adas-own", "ada=the-new-key-adas-own", "a-key-without-name"))
    async with running(app) as url:
        made = (await ask(url, posting({"input": "x"}, authorization="Bearer the-old-key-adas-own"))).json["id"]
        seen = [
            (await ask(url, Request("GET", f"/v1/responses/{made}", headers={"authorization": f"Bearer {key}"}))).status
            for key in ("the-new-key-adas-own", "a-key-without-name")
        ]

    assert seen == [200, 404]


async def test_what_was_sealed_for_one_opens_for_no_other() -> None:
    async with two_owners() as server:
        thought = (await server.made({"input": "x", "include": ["reasoning.encrypted_content"]}))["output"][0]
        sealed = thought["encrypted_content"]
        folded = (await server.made({"model": "m", "input": SECRET}, "/v1/responses/compact"))["output"][0]
        replay = [{"type": "reasoning", "summary": [], "encrypted_content": sealed}, {"role": "user", "content": "y"}]
        forged = [{**replay[0], "encrypted_content": sealed[:-8] + "AAAAAAA="}, replay[1]]
        own = await server.asks(ADA, "POST", "/v1/responses", {"input": replay})
        other = await server.asks(GRACE, "POST", "/v1/responses", {"input": replay})
        nobody = await server.asks(GRACE, "POST", "/v1/responses", {"input": forged})
        turns = {"input": [folded, {"role": "user", "content": "y"}]}
        mixed = {"input": [{**folded, "encrypted_content": sealed}, {"role": "user", "content": "y"}]}
        opened = await server.asks(ADA, "POST", "/v1/responses", turns)
        closed = [await server.asks(GRACE, "POST", "/v1/responses", body) for body in (turns, mixed)]
        swapped = await server.asks(ADA, "POST", "/v1/responses", mixed)

    said = [json.loads(one.json["output"][-1]["content"][0]["text"]) for one in (own, other, nobody)]
    assert said == [[SECRET, "y"], ["y"], ["y"]]
    assert SECRET in opened.body.decode()
    for answer in (*closed, swapped):
        assert (answer.status, answer.error["code"]) == (400, "invalid_encrypted_content")


async def test_what_one_socket_remembers_another_does_not() -> None:
    async with two_owners() as server:
        address = server.url.replace("http", "ws") + "/v1/responses"

        async def turn(socket: websockets.ClientConnection, **fields: Any) -> Json:
            await socket.send(json.dumps({"type": "response.create", **fields}))
            while True:
                event: Json = json.loads(await socket.recv())
                if event["type"] in ("error", "response.completed"):
                    return event

        async with (
            websockets.connect(address, additional_headers={"authorization": f"Bearer {ADA}"}) as first,
            websockets.connect(address, additional_headers={"authorization": f"Bearer {GRACE}"}) as second,
        ):
            local = (await turn(first, input=SECRET, store=False))["response"]["id"]
            stored = (await turn(first, input=SECRET))["response"]["id"]
            refusals = [
                await turn(second, input="x", previous_response_id=wanted)
                for wanted in (local, stored, "resp_" + "0" * 48)
            ]

    for refusal, wanted in zip(refusals, (local, stored, "resp_" + "0" * 48), strict=True):
        refusal["error"]["message"] = refusal["error"]["message"].replace(wanted, "")
    assert refusals[0] == refusals[1] == refusals[2]
    assert refusals[0]["error"]["code"] == "previous_response_not_found"


async def test_lists_and_counts_show_nobody_s_ids() -> None:
    async with two_owners(metrics=True) as server:
        ids = vars(await everything(server)).values()
        shown = [
            await server.asks(GRACE, "GET", path) for path in ("/metrics", "/v1/models", "/openapi.json", "/ready")
        ]

    for answer in shown:
        assert answer.status == 200
        text = answer.body.decode()
        assert not [one for one in (*ids, SECRET, ADA, GRACE, "grace") if one in text]


async def test_an_id_cannot_be_guessed() -> None:
    async with two_owners() as server:
        made = [(await server.made({"input": "x"}))["id"] for _ in range(50)]
        chained = (await server.made({"input": "x", "previous_response_id": made[0]}))["id"]

    assert len({one[-32:] for one in (*made, chained)}) == 51
    assert all(re.fullmatch(r"resp_[0-9a-f]{48}", one) for one in made)
    assert chained[-32:] != made[0][-32:]


async def test_a_model_s_caches_serve_their_owner_alone() -> None:
    """Neither counts, thoughts nor matches tell what another has asked: a prompt of theirs is computed anew."""
    model = Readable(make_network(), make_tokenizer(), "tiny")
    engine = Engine(model, kv_cache_bytes=2**24)
    app = build_app(ModelProgram(engine), api_keys=(f"ada={ADA}", f"grace={GRACE}"))
    question = {"input": "the cat sat on the mat and said hello to the world " * 5, "max_output_tokens": 8}
    chat = {"messages": [{"role": "user", "content": question["input"]}], "max_tokens": 8}
    cached = {}
    try:
        async with running(app) as url:
            for key in (ADA, GRACE, ADA):
                answer = await ask(url, posting(question, authorization=f"Bearer {key}"))
                spoken = await ask(url, posting(chat, "/v1/chat/completions", authorization=f"Bearer {key}"))
                cached.setdefault(key, []).append(
                    (
                        answer.json["usage"]["input_tokens_details"]["cached_tokens"] > 0,
                        spoken.json["usage"]["prompt_tokens_details"]["cached_tokens"] > 0,
                    )
                )
            assert len({entry.owner for entry in engine._store._entries}) == 2
    finally:
        engine.close()

    assert cached == {ADA: [(False, True), (True, True)], GRACE: [(False, True)]}


async def test_nobody_names_an_owner_an_id_or_an_outcome_for_what_is_made() -> None:
    """Fields of answers mean nothing in a request."""
    async with two_owners() as server:
        theirs = (await server.made({"input": SECRET}))["id"]
        forged: Json = {"id": theirs, "owner": "ada", "object": "response", "status": "failed", "created_at": 1}
        forged |= {"output": [{"type": "message", "role": "assistant", "content": "forged"}], "usage": {"x": 1}}
        made = await server.asks(GRACE, "POST", "/v1/responses", {"input": "x", **forged})
        talk = await server.asks(GRACE, "POST", "/v1/conversations", {"id": theirs, "owner": "ada", "created_at": 1})
        changed = await server.asks(
            GRACE, "POST", f"/v1/conversations/{talk.json['id']}", {"metadata": {}, "owner": "ada", "id": theirs}
        )
        kept = await server.asks(ADA, "GET", f"/v1/responses/{theirs}")
        unseen = await server.asks(ADA, "GET", f"/v1/responses/{made.json['id']}")

    assert made.json["id"] != theirs
    assert (made.json["status"], made.json["created_at"] > 1) == ("completed", True)
    assert "forged" not in made.body.decode()
    assert talk.json["id"] == changed.json["id"] != theirs
    assert (kept.status, unseen.status) == (200, 404)
    assert SECRET in kept.body.decode()
