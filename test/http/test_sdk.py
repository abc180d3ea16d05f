"""The official OpenAI SDK, unmodified, both ways."""

import asyncio
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from mellea_responses.turn import Call, CallArgs, CallEnd, Step, Text, Thought, Turn
from support.serving import serving

TOOL: Any = {
    "type": "function",
    "name": "tide",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    "strict": False,
}


def serve(input: Any, turn: Turn) -> list[Step]:
    """Calls the tide when there is one, else repeats all words it has heard."""
    if turn.tools and not any(message.role == "tool" for message in input):
        return [Thought("hm"), Text("Looking. "), Call("k", "tide"), CallArgs("k", '{"at":"Cobh"}'), CallEnd("k")]
    return [Text(" | ".join(f"{message.role}: {message.content}" for message in input))]


async def in_thread(url: str, use: Callable[[OpenAI], Any]) -> Any:
    """The synchronous client blocks, so it gets a thread."""

    def work() -> Any:
        with OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
            return use(client)

    return await asyncio.to_thread(work)


def client_of(url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


async def test_create_then_a_stream_that_continues_it_then_look_list_and_delete() -> None:
    def use(client: OpenAI) -> None:
        first = client.responses.create(model="local", input="My name is Ada.")
        with client.responses.stream(model="local", input="My name?", previous_response_id=first.id) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()

        assert final.output_text == f"user: My name is Ada. | assistant: {first.output_text} | user: My name?"
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        assert client.responses.retrieve(final.id).output_text == final.output_text
        assert "My name?" in str(client.responses.input_items.list(final.id).data[0])
        client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)

    async with serving(serve) as url:
        await in_thread(url, use)


async def test_the_same_with_the_asynchronous_client() -> None:
    async with serving(serve) as url, client_of(url) as client:
        first = await client.responses.create(model="local", input="My name is Ada.")
        async with client.responses.stream(model="local", input="?", previous_response_id=first.id) as stream:
            joined = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
            final = await stream.get_final_response()
        listed = [item async for item in client.responses.input_items.list(final.id, order="asc", limit=1)]
        again = await client.responses.retrieve(final.id)
        await client.responses.delete(first.id)

        assert joined == final.output_text == again.output_text
        assert "Ada" in joined
        assert listed
        with pytest.raises(openai.BadRequestError, match="Previous") as refused:
            await client.responses.create(model="local", input="x", previous_response_id=first.id)
        assert refused.value.code == "previous_response_not_found"


async def test_a_tool_round_trip_through_the_stream_helper() -> None:
    async with serving(serve) as url, client_of(url) as client:
        async with client.responses.stream(model="local", input="Tide?", tools=[TOOL]) as stream:
            kinds = [event.type async for event in stream]
            first = await stream.get_final_response()
        (call,) = [item for item in first.output if item.type == "function_call"]
        answer = await client.responses.create(
            model="local",
            previous_response_id=first.id,
            tools=[TOOL],
            input=[{"type": "function_call_output", "call_id": call.call_id, "output": "2.4 m"}],
        )

    assert "response.function_call_arguments.delta" in kinds
    assert call.arguments == '{"at":"Cobh"}'
    assert answer.output_text.endswith("tool: 2.4 m")


async def test_what_the_client_got_can_be_fed_back_as_it_is() -> None:
    async with serving(serve) as url, client_of(url) as client:
        first = await client.responses.create(model="local", input="Tide?", tools=[TOOL], store=False)
        (call,) = [item for item in first.output if item.type == "function_call"]
        history: Any = [
            {"role": "user", "content": "Tide?"},
            *first.output,
            {"type": "function_call_output", "call_id": call.call_id, "output": "2.4 m"},
        ]
        answer = await client.responses.create(model="local", input=history, tools=[TOOL], store=False)

    assert answer.output_text.endswith("tool: 2.4 m")


async def test_a_stored_stream_is_resumed_where_the_client_stopped() -> None:
    async with serving(serve) as url, client_of(url) as client:
        stream = await client.responses.create(model="local", input="one two three", stream=True)
        events = [event async for event in stream]
        created = events[0].response.id  # type: ignore[union-attr]  # the first is response.created
        rest = await client.responses.retrieve(created, stream=True, starting_after=2)
        resumed = [event async for event in rest]

    assert [event.to_json() for event in resumed] == [event.to_json() for event in events[3:]]


async def test_a_refused_request_is_the_right_exception_with_its_code_and_path() -> None:
    async with serving(serve, model_names=("local",)) as url, client_of(url) as client:
        with pytest.raises(openai.BadRequestError) as bad:
            await client.responses.create(model="local", input="x", temperature=9)
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.responses.create(model="gpt-99", input="x")
        with pytest.raises(openai.NotFoundError):
            await client.responses.delete("resp_ghost")

    assert (bad.value.code, bad.value.param, bad.value.type) == (
        "invalid_request",
        "temperature",
        "invalid_request_error",
    )
    assert unknown.value.code == "model_not_found"


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_a_failure_of_the_program_raises_and_is_not_tried_again(stream: bool) -> None:
    calls = []

    def failing(input: Any) -> str:
        calls.append(input)
        raise RuntimeError("secret")

    async def use(client: AsyncOpenAI) -> None:
        answer: Any = await client.responses.create(model="local", input="x", stream=stream)
        if stream:
            assert "response.failed" not in [event.type async for event in answer]

    async with serving(failing) as url, AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client:
        with pytest.raises(openai.APIError) as failure:
            await use(client)

    assert "secret" not in str(failure.value)
    assert len(calls) == 1


async def test_the_models_are_listed() -> None:
    async with serving(serve, model_names=("a", "b")) as url, client_of(url) as client:
        assert [model.id async for model in client.models.list()] == ["a", "b"]
        assert (await client.models.retrieve("a")).id == "a"


async def test_structured_output_is_parsed() -> None:
    from pydantic import BaseModel

    class Boat(BaseModel):
        name: str
        length: float

    async with serving(lambda input: Boat(name="Heron", length=8.5)) as url, client_of(url) as client:
        answer = await client.responses.parse(model="local", input="A boat", text_format=Boat)

    assert answer.output_parsed == Boat(name="Heron", length=8.5)
