"""What clients of chat send: the official SDK, both ways, and requests of the shapes that clients of `m serve` send."""

import asyncio
import base64
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessage
from pydantic import BaseModel

from mellea_responses.turn import Call, CallArgs, CallEnd, Refusal, Stop, Text, Thought, Turn
from support.raw import post
from support.serving import serving

Json = dict[str, Any]
PATH = "/v1/chat/completions"
TIDE: Any = {
    "type": "function",
    "function": {
        "name": "tide",
        "description": "The height of the tide.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    },
}
HI: Any = [{"role": "user", "content": "hi"}]


def talk(input: Any, turn: Turn) -> Iterator[Any]:
    """Calls the tide once for every message from the user, and tells what it heard when it has its answer."""
    if turn.tools and input[-1].role == "user":
        yield Thought("Where? ")
        yield Text("Looking.")
        yield from (Call("a", "tide"), CallArgs("a", '{"at":'), CallArgs("a", '"Cobh"}'), CallEnd("a"))
        yield from (Call("b", "tide"), CallArgs("b", '{"at":"Youghal"}'), CallEnd("b"))
    else:
        yield from (Text(f"{message.role}: {message.content} | ") for message in input)


async def in_thread(url: str, use: Callable[[OpenAI], Any]) -> Any:
    """The synchronous client blocks, so it gets a thread."""

    def work() -> Any:
        with OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
            return use(client)

    return await asyncio.to_thread(work)


def client_of(url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


# ---------------------------------------------------------------- the SDK


async def test_the_synchronous_client_gets_an_answer_and_a_stream_of_it() -> None:
    def use(client: OpenAI) -> None:
        answer = client.chat.completions.create(model="m", messages=HI)
        chunks = list(
            client.chat.completions.create(model="m", messages=HI, stream=True, stream_options={"include_usage": True})
        )

        words = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert "".join(words) == answer.choices[0].message.content == "user: hi | "
        assert chunks[-1].usage == answer.usage

    async with serving(talk) as url:
        await in_thread(url, use)


async def test_two_turns_with_tools_through_the_stream_helper() -> None:
    messages: list[Any] = [{"role": "user", "content": "Tide?"}]
    async with serving(talk) as url, client_of(url) as client:
        async with client.chat.completions.stream(model="m", messages=messages, tools=[TIDE]) as stream:
            kinds = [event.type async for event in stream]
            first = (await stream.get_final_completion()).choices[0]
        calls = first.message.tool_calls or []
        results = [{"role": "tool", "tool_call_id": call.id, "content": call.function.arguments} for call in calls]
        messages += [first.message, *results]
        second = await client.chat.completions.create(model="m", messages=messages, tools=[TIDE])

    assert first.finish_reason == "tool_calls"
    assert [json.loads(call.function.arguments) for call in calls] == [{"at": "Cobh"}, {"at": "Youghal"}]
    assert kinds.count("tool_calls.function.arguments.done") == 2
    assert second.choices[0].message.content == (
        'user: Tide? | assistant: Looking. | tool: {"at":"Cobh"} | tool: {"at":"Youghal"} | '
    )


async def test_an_agent_of_many_steps_is_heard_step_by_step() -> None:
    def serve(input: Any, turn: Turn) -> Iterator[Any]:
        done = sum(message.role == "tool" for message in input)
        if done == 3:
            yield json.dumps([(one.role, [call["id"] for call in one.tool_calls or []]) for one in input])
        else:
            yield from (Call("k", "tide", call_id=f"call_{done}"), CallArgs("k", '{"at":"x"}'), CallEnd("k"))

    messages: list[Any] = [*HI]
    async with serving(serve) as url, client_of(url) as client:
        while True:
            answer = await client.chat.completions.create(model="m", messages=messages, tools=[TIDE])
            message: ChatCompletionMessage = answer.choices[0].message
            if not message.tool_calls:
                break
            messages.append(message)
            messages += [{"role": "tool", "tool_call_id": call.id, "content": "1 m"} for call in message.tool_calls]

    steps = [[["assistant", [f"call_{n}"]], ["tool", []]] for n in range(3)]
    assert json.loads(message.content or "") == [["user", []], *(one for step in steps for one in step)]


class Tide(BaseModel):
    at: str
    metres: float


async def test_parse_gives_an_object_of_the_asked_class() -> None:
    def serve(input: Any, format: Any) -> str:
        assert set(format.model_json_schema()["properties"]) == {"at", "metres"}
        return '{"at": "Cobh", "metres": 2.4}'

    async with serving(serve) as url, client_of(url) as client:
        parsed = await client.chat.completions.parse(model="m", messages=HI, response_format=Tide)
        async with client.chat.completions.stream(model="m", messages=HI, response_format=Tide) as stream:
            final = await stream.get_final_completion()

    assert parsed.choices[0].message.parsed == final.choices[0].message.parsed == Tide(at="Cobh", metres=2.4)


async def test_a_refusal_is_no_content() -> None:
    async with serving(lambda turn: [Refusal("I will not.")]) as url, client_of(url) as client:
        plain = await client.chat.completions.parse(model="m", messages=HI, response_format=Tide)
        async with client.chat.completions.stream(model="m", messages=HI) as stream:
            final = await stream.get_final_completion()

    assert plain.choices[0].message.parsed is None
    for answer in (plain, final):
        assert (answer.choices[0].message.content, answer.choices[0].message.refusal) == (None, "I will not.")


async def test_an_answer_that_was_cut_says_so() -> None:
    async with serving(lambda turn: [Text('{"at":'), Stop("length")]) as url, client_of(url) as client:
        with pytest.raises(openai.LengthFinishReasonError):
            await client.chat.completions.parse(model="m", messages=HI, response_format=Tide, max_tokens=3)


async def test_a_failure_in_the_stream_is_an_exception_with_its_code() -> None:
    def serve(input: Any) -> Iterator[str]:
        yield "Half a"
        raise RuntimeError

    async with serving(serve) as url, client_of(url) as client:
        stream = await client.chat.completions.create(model="m", messages=HI, stream=True)
        with pytest.raises(openai.APIError) as failed:
            async for _ in stream:
                pass

    assert failed.value.code == "server_error"


async def test_a_refused_request_is_the_right_exception_with_its_path() -> None:
    async with serving(talk, model_names=("m",)) as url, client_of(url) as client:
        with pytest.raises(openai.BadRequestError) as bad:
            await client.chat.completions.create(model="m", messages=HI, n=3)
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(model="gpt-99", messages=HI)

    assert (bad.value.param, bad.value.type) == ("n", "invalid_request_error")
    assert unknown.value.code == "model_not_found"


async def test_a_choice_that_the_answer_does_not_keep_is_a_failure() -> None:
    async with serving(lambda input: "I would rather talk.") as url, client_of(url) as client:
        with pytest.raises(openai.InternalServerError) as failed:
            await client.chat.completions.create(model="m", messages=HI, tools=[TIDE], tool_choice="required")

    assert failed.value.code == "tool_choice_violated"


# ---------------------------------------------------------------- programs and clients of `m serve`


async def test_requirements_and_options_reach_the_program_as_mellea_passes_them() -> None:
    seen: Json = {}

    def serve(input: Any, requirements: Any = None, model_options: Any = None, client_options: Any = None) -> str:
        seen.update(requirements=requirements, model_options=model_options, client_options=client_options)
        return str(input[-1].content)

    body = {
        "model": "small", "messages": HI, "requirements": ["Be brief."], "temperature": 0.7, "max_tokens": 9,
        "user": "ada", "route": "north",
    }  # fmt: skip
    async with serving(serve) as url:
        answer = await post(url, body, PATH)

    assert answer.json["choices"][0]["message"]["content"] == "hi"
    assert seen["requirements"] == ["Be brief."]
    assert seen["model_options"] == {"temperature": 0.7, "@@@max_new_tokens@@@": 9}
    assert seen["client_options"] == body


async def test_requirements_through_the_sdk_are_an_extra_field() -> None:
    async with serving(lambda input, requirements: " ".join(requirements)) as url, client_of(url) as client:
        answer = await client.chat.completions.create(model="m", messages=HI, extra_body={"requirements": ["a", "b"]})

    assert answer.choices[0].message.content == "a b"


async def test_a_forced_tool_streamed_is_whole_in_the_last_chunk_that_has_calls() -> None:
    """Mellea's own streaming client keeps the calls of the last chunk that has any, and sends them back as they are."""

    def serve(input: Any, model_options: Any) -> Iterator[Any]:
        choice = model_options.get("tool_choice")
        if choice:
            yield from (Call("k", choice["function"]["name"]), CallArgs("k", '{"at": "Cobh"}'), CallEnd("k"))
        else:
            yield f"{input[-2].role} said {input[-2].content}"

    forced = {"type": "function", "function": {"name": "tide"}}
    body: Json = {"model": "m", "messages": [*HI], "temperature": 0.7, "stream": True}
    async with serving(serve) as url:
        first = await post(url, {**body, "tools": [TIDE], "tool_choice": forced}, PATH)
        chunks = [frame.json["choices"][0] for frame in first.frames if frame.is_event]
        calls = [choice["delta"]["tool_calls"] for choice in chunks if choice["delta"].get("tool_calls")][-1]
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": calls},
            *({"role": "tool", "tool_call_id": call["id"], "content": "2.4 m"} for call in calls),
            {"role": "user", "content": "So?"},
        ]
        second = await post(url, body, PATH)

    assert chunks[-1]["finish_reason"] == "tool_calls"
    assert json.loads(calls[0]["function"]["arguments"]) == {"at": "Cobh"}
    words = [frame.json["choices"][0]["delta"].get("content") for frame in second.frames if frame.is_event]
    assert "tool said 2.4 m" in words


@pytest.mark.parametrize(
    ("form", "given_"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, None),
        (
            {
                "type": "json_schema",
                "json_schema": {"name": "Tide", "schema": Tide.model_json_schema(), "strict": True},
            },
            ["at", "metres"],
        ),
    ],
)
async def test_a_format_reaches_a_program_that_names_it(form: Json, given_: Any) -> None:
    def serve(input: Any, format: Any = None) -> str:
        asked = list(format.model_json_schema()["properties"]) if format else None
        assert asked == given_
        return '{"at": "Cobh", "metres": 1}'

    async with serving(serve) as url:
        answer = await post(url, {"model": "m", "messages": HI, "response_format": form}, PATH)

    assert json.loads(answer.json["choices"][0]["message"]["content"])["at"] == "Cobh"


def png() -> str:
    """A green point, base64."""

    def piece(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\0\xff\0")
    whole = b"\x89PNG\r\n\x1a\n" + piece(b"IHDR", head) + piece(b"IDAT", pixels) + piece(b"IEND", b"")
    return base64.b64encode(whole).decode()


async def test_pictures_and_sounds_reach_the_program_in_mellea_s_own_blocks() -> None:
    def serve(input: Any) -> str:
        [image], [audio] = input[-1].get_image_blocks(), input[-1].get_audio_blocks()
        return f"{input[-1].get_text_content()} {type(image).__name__} {type(audio).__name__}"

    sound = base64.b64encode(b"RIFF\x24\0\0\0WAVEfmt " + bytes(28)).decode()
    content = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png()}"}},
        {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}},
    ]
    async with serving(serve) as url, client_of(url) as client:
        messages: Any = [{"role": "user", "content": content}]
        answer = await client.chat.completions.create(model="ignored", messages=messages)

    assert answer.choices[0].message.content == "What is this? ImageBlock AudioBlock"
