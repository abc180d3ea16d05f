"""`/v1/chat/completions` on the wire: chunks, silence, leaving, failures, and one error shape."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mellea_responses.errors import InvalidRequest
from mellea_responses.http.app import create_app
from mellea_responses.http.openapi import document
from mellea_responses.program.user import UserProgram
from mellea_responses.settings import Settings
from mellea_responses.turn import Annotation, Call, CallArgs, CallEnd, Facts, Stop, Text, Thought, Turn
from mellea_responses.wire.items import Logprob
from support import raw
from support.raw import Answer, get, post, posting
from support.serving import running, serving

Json = dict[str, Any]
PATH = "/v1/chat/completions"
ASK: Json = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
F: Json = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def echo(input: Any) -> Iterator[str]:
    yield "You said: "
    yield str(input[-1].content)


def deltas(answer: Answer) -> list[Json]:
    return [frame.json["choices"][0]["delta"] for frame in answer.frames if frame.is_event and "choices" in frame.json]


# ---------------------------------------------------------------- the answer


@pytest.mark.parametrize("path", [PATH, "/chat/completions"])
async def test_the_answer_is_the_same_with_and_without_the_version(path: str) -> None:
    async with serving(echo) as url:
        answer = await post(url, ASK, path)

    assert answer.status == 200
    assert answer.headers["x-request-id"].startswith("req_")
    [choice] = answer.json["choices"]
    assert choice["message"] == {
        "role": "assistant", "content": "You said: hi", "refusal": None, "annotations": [],
    }  # fmt: skip
    assert (answer.json["object"], choice["index"], choice["finish_reason"]) == ("chat.completion", 0, "stop")


async def test_a_stream_is_frames_without_names_that_end_with_done() -> None:
    async with serving(echo) as url:
        answer = await post(url, {**ASK, "stream": True}, PATH)

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.clean
    assert all(frame.names == ["data"] for frame in answer.frames)
    assert answer.frames[-1].is_done
    assert deltas(answer) == [
        {"role": "assistant", "content": None}, {"content": "You said: "}, {"content": "hi"}, {},
    ]  # fmt: skip
    assert "usage" not in str(answer.body)


async def test_counts_are_the_last_chunk_where_the_client_asked_for_them() -> None:
    async with serving(echo) as url:
        answer = await post(url, {**ASK, "stream": True, "stream_options": {"include_usage": True}}, PATH)

    *before, last = [frame.json for frame in answer.frames if frame.is_event]
    assert all(chunk["usage"] is None for chunk in before)
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] > 0


async def test_an_answer_is_kept_as_a_response_only_when_asked() -> None:
    async with serving(echo) as url:
        kept, unkept = await post(url, {**ASK, "store": True}, PATH), await post(url, ASK, PATH)
        found = [
            await get(url, f"/v1/responses/resp_{answer.json['id'].removeprefix('chatcmpl-')}")
            for answer in (kept, unkept)
        ]

    assert [answer.status for answer in found] == [200, 404]
    assert found[0].json["output"][0]["content"][0]["text"] == "You said: hi"


async def test_hosted_tools_are_named_in_the_header() -> None:
    async with serving(echo) as url:
        answers = [
            await post(url, {**ASK, "tools": [{"type": "web_search"}], "stream": stream}, PATH)
            for stream in (True, False)
        ]

    assert [answer.headers["x-mellea-unsupported-tools"] for answer in answers] == ["web_search"] * 2


# ---------------------------------------------------------------- time


async def test_headers_and_the_role_come_before_the_program_has_said_anything() -> None:
    release = threading.Event()

    def serve(input: Any) -> str:
        release.wait(30)
        return "late"

    async with serving(serve) as url, raw.exchange(url, posting({**ASK, "stream": True}, PATH)) as opened:
        frames = opened.frames()
        first = await anext(frames)
        release.set()
        rest = [frame async for frame in frames]

    assert first.json["choices"][0]["delta"]["role"] == "assistant"
    assert rest[0].json["choices"][0]["delta"] == {"content": "late"}


async def test_silence_is_filled_with_comments() -> None:
    async def serve(input: Any) -> AsyncIterator[str]:
        await asyncio.sleep(0.3)
        yield "late"

    async with serving(serve, ping_seconds=0.05) as url:
        answer = await post(url, {**ASK, "stream": True}, PATH)

    assert sum(frame.is_comment for frame in answer.frames) >= 2
    assert {"content": "late"} in deltas(answer)


async def test_a_call_being_written_is_no_silence() -> None:
    async def serve(turn: Turn) -> AsyncIterator[Any]:
        yield Call("k", "f")
        yield CallArgs("k", '{"x":"')
        for _ in range(20):
            await asyncio.sleep(0.02)
            yield CallArgs("k", "word ")
        yield CallArgs("k", '"}')

    async with serving(serve, ping_seconds=0.05) as url:
        answer = await post(url, {**ASK, "stream": True, "tools": [F]}, PATH)

    assert sum(frame.is_comment for frame in answer.frames) >= 2
    assert json.loads(deltas(answer)[-2]["tool_calls"][0]["function"]["arguments"]) == {"x": "word " * 20}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
async def test_a_client_that_leaves_ends_the_work_for_it(stream: bool) -> None:
    begun, left = threading.Event(), threading.Event()

    async def serve(input: Any) -> AsyncIterator[str]:
        begun.set()
        try:
            while True:
                yield "word "
                await asyncio.sleep(0.01)
        finally:
            left.set()

    async with serving(serve) as url:
        leaving = asyncio.create_task(post(url, {**ASK, "stream": stream}, PATH))
        assert await asyncio.to_thread(begun.wait, 5)
        leaving.cancel()

        assert await asyncio.to_thread(left.wait, 5)


# ---------------------------------------------------------------- failures


def breaks(input: Any) -> Iterator[str]:
    yield "Half a"
    raise RuntimeError("internal words")


async def test_a_failure_after_words_is_an_error_chunk_and_then_the_end() -> None:
    async with serving(breaks) as url:
        answer = await post(url, {**ASK, "stream": True}, PATH)

    *_, words, failed, done = answer.frames
    assert words.json["choices"][0]["delta"] == {"content": "Half a"}
    assert failed.json["error"] | {"message": ""} == {
        "message": "", "type": "server_error", "param": "", "code": "server_error",
    }  # fmt: skip
    assert "internal" not in str(answer.body)
    assert done.is_done


async def test_a_failure_of_a_plain_answer_is_an_http_error() -> None:
    async with serving(breaks) as url:
        answer = await post(url, ASK, PATH)

    assert answer.status == 500
    assert answer.headers["x-should-retry"] == "false"
    assert answer.error["code"] == "server_error"


async def test_a_call_that_breaks_a_rule_never_leaves() -> None:
    def serve(turn: Turn) -> Iterator[Any]:
        yield Text("Well. ")
        yield from (Call("a", "f"), CallArgs("a", "{}"), CallEnd("a"))
        yield from (Call("b", "nobody"), CallEnd("b"))

    async with serving(serve) as url:
        streamed = await post(url, {**ASK, "tools": [F], "stream": True}, PATH)
        plain = await post(url, {**ASK, "tools": [F]}, PATH)

    assert "tool_calls" not in str(streamed.body)
    assert streamed.frames[-2].json["error"]["code"] == plain.error["code"] == "invalid_tool_call"


async def test_an_answer_that_is_not_of_its_form_fails() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "N", "strict": True, "schema": {"type": "object"}}}

    async with serving(echo) as url:
        answer = await post(url, {**ASK, "response_format": form}, PATH)

    assert (answer.status, answer.error["code"]) == (500, "invalid_structured_output")


async def test_the_programs_own_complaint_names_chats_field() -> None:
    def serve(input: Any) -> str:
        raise InvalidRequest("Too long for me.", param="input[1].content")

    async with serving(serve) as url:
        answer = await post(url, {**ASK, "messages": [*ASK["messages"], *ASK["messages"]]}, PATH)

    assert (answer.status, answer.error["param"]) == (400, "messages[1].content")


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({**ASK, "n": 2}, 400, "invalid_request", "n"),
        ({**ASK, "messages": [{"role": "user", "content": [{"type": "text"}]}]}, 400, "invalid_request",
         "messages[0].content[0].text"),
        ({**ASK, "messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}, 400, "tool_call_not_found",
         "messages"),
        ({**ASK, "model": "other"}, 404, "model_not_found", "model"),
        ([], 400, "invalid_request", ""),
    ],
)  # fmt: skip
async def test_what_is_refused_is_told_in_the_one_shape(body: Any, status: int, code: str, param: str) -> None:
    async with serving(echo, model_names=("m",)) as url:
        plain = await post(url, body, PATH)
        streamed = await post(url, {**body, "stream": True} if isinstance(body, dict) else body, PATH)

    for answer in (plain, streamed):
        assert answer.status == status
        assert answer.error.keys() == {"message", "type", "param", "code"}
        assert (answer.error["code"], answer.error["param"]) == (code, param)
        assert answer.error["message"]


async def test_a_body_that_is_no_json_and_a_method_that_is_not_offered() -> None:
    async with serving(echo) as url:
        broken = await raw.ask(url, raw.Request("POST", PATH, b"{", {"content-type": "application/json"}))
        plain = await raw.ask(url, raw.Request("POST", PATH, b"{}", {"content-type": "text/plain"}))
        wrong = await get(url, PATH)

    assert [(one.status, one.error["code"]) for one in (broken, plain, wrong)] == [
        (400, "invalid_json"), (415, "unsupported_media_type"), (405, "method_not_allowed"),
    ]  # fmt: skip


async def test_a_server_that_stops_ends_the_stream_with_its_error() -> None:
    async def serve(input: Any) -> AsyncIterator[str]:
        yield "word"
        await asyncio.sleep(3600)

    app = create_app(UserProgram(serve), Settings())
    async with running(app) as url, raw.exchange(url, posting({**ASK, "stream": True}, PATH)) as opened:
        frames = opened.frames()
        while "content" not in (await anext(frames)).data or len(opened.answer.chunks) < 2:
            pass
        app.state.service.drain()
        rest = [frame async for frame in frames]

    assert rest[-2].json["error"]["code"] == "server_draining"
    assert rest[-1].is_done


# ---------------------------------------------------------------- one path


async def test_chat_and_responses_say_the_same_of_the_same_steps() -> None:
    def serve(turn: Turn) -> Iterator[Any]:
        yield from (Thought("hm"), Text("So. "), Call("k", "f", call_id="c1"), CallArgs("k", '{"x":1}'), CallEnd("k"))
        yield Stop()

    responses_tool = {"type": "function", "name": "f"}
    async with serving(serve) as url:
        chat = (await post(url, {**ASK, "tools": [F]}, PATH)).json["choices"][0]["message"]
        output = (await post(url, {"input": "hi", "tools": [responses_tool]})).json["output"]

    thought, message, call = output
    assert chat["reasoning_content"] == thought["content"][0]["text"]
    assert chat["content"] == message["content"][0]["text"]
    assert chat["tool_calls"][0]["id"] == call["call_id"]
    assert chat["tool_calls"][0]["function"] == {"name": call["name"], "arguments": call["arguments"]}


async def test_hidden_reasoning_is_in_neither_form() -> None:
    async with serving(lambda turn: [Thought("secret"), Text("x")], reasoning="hidden") as url:
        answers = [await post(url, {**ASK, "stream": stream}, PATH) for stream in (True, False)]

    assert all(b"secret" not in answer.body for answer in answers)


async def test_answers_and_chunks_are_as_the_document_describes_them() -> None:
    components = json.loads(document())["components"]

    def complaints(value: Any, name: str) -> list[str]:
        judge = Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": components})
        return [error.message for error in judge.iter_errors(value)]

    def serve(turn: Turn) -> Iterator[Any]:
        yield from (Thought("hm"), Text("So. ", (Logprob("So", -0.5, [83, 111]),)))
        yield Annotation("https://example.test", "Source", 0, 2)
        yield from (Call("k", "f"), CallArgs("k", "{}"), CallEnd("k"))

    body = {**ASK, "tools": [F], "logprobs": True, "stream_options": {"include_usage": True}}
    program = UserProgram(serve, check=lambda turn: Facts(logprobs=True))
    async with serving(program) as url:
        whole = await post(url, body, PATH)
        streamed = await post(url, {**body, "stream": True}, PATH)
    async with serving(serve) as url:
        refused = await post(url, body, PATH)

    assert (refused.status, refused.error["param"], refused.error["code"]) == (400, "logprobs", "no_logprobs")
    assert not complaints(body, "CreateChat")
    assert complaints({**body, "messages": [{"role": "boss"}]}, "CreateChat")
    assert not complaints(whole.json, "ChatCompletion")
    for frame in streamed.frames[:-1]:
        assert not complaints(frame.json, "ChatChunk")


async def test_reasoning_that_the_client_left_out_comes_back_with_its_call() -> None:
    def serve(input: Any, turn: Turn) -> Iterator[Any]:
        if input[-1].role == "user":
            yield from (Thought("hm"), Call("k", "f"), CallArgs("k", "{}"), CallEnd("k"))
        else:
            yield json.dumps([message.reasoning for message in input if message.role == "assistant"])

    async with serving(serve) as url:
        said = (await post(url, {**ASK, "tools": [F]}, PATH)).json["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "x"}
        silent = {key: value for key, value in said.items() if key != "reasoning_content"}
        heard = [
            await post(url, {**ASK, "messages": [*ASK["messages"], message, result]}, PATH)
            for message in (said, silent)
        ]

    assert [json.loads(one.json["choices"][0]["message"]["content"]) for one in heard] == [["hm"], ["hm"]]
