"""Mellea programs as people write them, behind a real server and the OpenAI SDK: streamed, whole, and failing."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from typing import Any

import openai
import pytest
from mellea import MelleaSession, generative
from mellea.backends import ModelOption
from mellea.backends.openai import OpenAIBackend
from mellea.stdlib.components import Instruction
from mellea.stdlib.context import ChatContext, SimpleContext
from mellea.stdlib.requirements import req, simple_validate
from mellea.stdlib.sampling import RejectionSamplingStrategy
from mellea.stdlib.streaming import stream
from PIL import Image
from pydantic import BaseModel

from mellea_responses.context import to_context, to_message
from support import sdk
from support.mellea_backend import Heard, ScriptedBackend, words
from support.raw import get
from support.services import stand_in
from support.serving import serving

LOOK = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    "strict": False,
}


@pytest.fixture(autouse=True)
async def _close_clients() -> AsyncIterator[None]:
    yield
    for client in sdk.opened:
        await client.close()
    sdk.opened.clear()


async def ask(serve: Callable[..., Any], streamed: bool = False, **asked: Any) -> Any:
    """The SDK's response, and the types of its events where it was streamed."""
    async with serving(serve) as url:
        return await ask_at(url, streamed, **asked)


async def ask_at(url: str, streamed: bool = False, **asked: Any) -> Any:
    client = sdk.client_of(url)
    asked = {"model": "any", "input": "hi", **asked}
    if not streamed:
        return await client.responses.create(**asked)
    async with client.responses.stream(**asked) as events:
        async for _ in events:
            pass
        return await events.get_final_response()


both = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@both
async def test_an_answer_is_repaired_until_every_requirement_holds(streamed: bool) -> None:
    answers = iter(["nothing of the kind", "Hi Bob!"])
    backend = ScriptedBackend(lambda heard: words(next(answers)))

    def serve(input: Any, requirements: Any = None, model_options: Any = None) -> Any:
        asked = [req("greets Bob", validation_fn=simple_validate(lambda text: "Bob" in text)), *requirements]
        return MelleaSession(backend, SimpleContext()).instruct(
            input[-1].content,
            requirements=asked,
            strategy=RejectionSamplingStrategy(loop_budget=3),
            model_options=model_options,
        )

    answer = await ask(serve, streamed)

    assert answer.output_text == "Hi Bob!"
    assert len(backend.heard) == 2
    assert "temperature" not in backend.heard[0].options


@both
async def test_an_uncomputed_thunk_streams_thoughts_and_text_with_true_counts(streamed: bool) -> None:
    backend = ScriptedBackend([("think", "hm"), *words("a b c")])

    async def serve(input: Any, requirements: Any = None, model_options: Any = None) -> Any:
        session = MelleaSession(backend, SimpleContext())
        return await session.ainstruct("x", strategy=None, await_result=False, model_options=model_options)

    answer = await ask(serve, streamed)

    assert answer.output_text == "a b c"
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    usage = answer.usage
    assert (usage.output_tokens, usage.input_tokens_details.cached_tokens) == (4, 1)
    assert bool(backend.heard[0].options.get(ModelOption.STREAM)) is streamed


class Person(BaseModel):
    name: str
    age: int


async def test_a_form_reaches_the_backend_and_the_client_parses_the_answer() -> None:
    backend = ScriptedBackend(words('{"name": "Ada", "age": 36}'))

    def serve(input: Any, requirements: Any = None, model_options: Any = None, format: Any = None) -> Any:
        return MelleaSession(backend, SimpleContext()).instruct("x", format=format, model_options=model_options)

    async with serving(serve) as url:
        answer = await sdk.client_of(url).responses.parse(model="any", input="hi", text_format=Person)

    assert answer.output_parsed == Person(name="Ada", age=36)
    assert backend.heard[0].format.model_json_schema()["additionalProperties"] is False


@both
async def test_a_generative_function_and_a_chat_message_are_answers(streamed: bool) -> None:
    @generative
    def person(text: str) -> Person:
        """Who is it about?"""

    typed = ScriptedBackend(words('{"result": {"name": "Ada", "age": 36}}'))
    said = ScriptedBackend(words("hello you"))

    answer = await ask(lambda input: person(MelleaSession(typed, SimpleContext()), text="x"), streamed)
    assert json.loads(answer.output_text) == {"name": "Ada", "age": 36}

    answer = await ask(lambda input: MelleaSession(said, ChatContext()).chat("x"), streamed)
    assert answer.output_text == "hello you"


@both
async def test_validated_streaming_keeps_every_blank(streamed: bool) -> None:
    async def serve(input: Any) -> Any:
        backend = ScriptedBackend(words("One.  Two. Three."))
        return await stream(Instruction("x"), backend, SimpleContext(), chunking="sentence")

    assert (await ask(serve, streamed)).output_text == "One.  Two. Three."


@both
async def test_a_client_runs_its_tool_and_the_next_turn_sees_call_and_output(streamed: bool) -> None:
    def script(heard: Heard) -> Any:
        if any(message["role"] == "tool" for message in heard.conversation):
            return words("It is 42.")
        return [("think", "hm"), ("call", {"name": "look", "arguments": '{"q": "x"}', "id": None})]

    backend = ScriptedBackend(script)

    def serve(input: Any, requirements: Any = None, model_options: Any = None) -> Any:
        session = MelleaSession(backend, to_context(input[:-1]))
        return session.act(to_message(input[-1]), strategy=None, tool_calls=True, model_options=model_options)

    async with serving(serve) as url:
        first = await ask_at(url, streamed, tools=[LOOK])
        [call] = [item for item in first.output if item.type == "function_call"]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
        second = await ask_at(url, streamed, tools=[LOOK], input=[output], previous_response_id=first.id)

    assert second.output_text == "It is 42."
    roles = [message["role"] for message in backend.heard[1].conversation]
    assert roles == ["user", "assistant", "tool"]
    assert backend.heard[1].conversation[1]["tool_calls"][0]["id"] == call.call_id
    assert backend.heard[1].conversation[2]["tool_call_id"] == call.call_id


@both
async def test_another_server_s_calls_come_through_argument_by_argument(streamed: bool) -> None:
    with stand_in() as (url, heard):

        async def serve(input: Any, requirements: Any = None, model_options: Any = None) -> Any:
            backend = OpenAIBackend("m", base_url=f"{url}/v1", api_key="k")
            session = MelleaSession(backend, SimpleContext())
            return await session.ainstruct(
                "x", strategy=None, await_result=False, tool_calls=True, model_options=model_options
            )

        async with serving(serve) as ours:
            if streamed:
                async with sdk.client_of(ours).responses.stream(model="any", input="hi", tools=[LOOK]) as events:
                    pieces = [e.delta async for e in events if e.type == "response.function_call_arguments.delta"]
                    answer: Any = await events.get_final_response()
                assert pieces == ['{"q":', ' "Boston"}']
            else:
                answer = await ask_at(ours, tools=[LOOK])

    [call] = [item for item in answer.output if item.type == "function_call"]
    assert (call.name, call.call_id, call.arguments) == ("look", "call_stand_in", '{"q": "Boston"}')
    assert heard[0]["tools"][0]["function"]["name"] == "look"
    assert answer.usage.input_tokens == 7


async def test_a_picture_reaches_the_model_whatever_its_kind() -> None:
    backend = ScriptedBackend(words("a dot"))
    out = BytesIO()
    Image.new("RGB", (2, 2)).save(out, "WEBP")
    url = f"data:image/webp;base64,{base64.b64encode(out.getvalue()).decode()}"

    def serve(input: Any) -> Any:
        images = input[-1].get_image_blocks()
        return MelleaSession(backend, ChatContext()).chat(input[-1].get_text_content(), images=images)

    parts = [{"type": "input_text", "text": "See?"}, {"type": "input_image", "image_url": url, "detail": "auto"}]
    answer = await ask(serve, input=[{"role": "user", "content": parts}])

    assert answer.output_text == "a dot"
    assert backend.heard[0].images == 1


async def test_a_broken_picture_is_a_400_that_names_it_even_for_a_stream() -> None:
    broken = {"type": "input_image", "image_url": "data:image/png;base64,aGVsbG8=", "detail": "auto"}

    with pytest.raises(openai.BadRequestError) as caught:
        await ask(lambda input: "ok", streamed=True, input=[{"role": "user", "content": [broken]}])

    assert caught.value.param == "input[0].content[0]"


@pytest.mark.parametrize("stage", ["call", "backend", "validator", "cancelled"])
async def test_a_program_that_fails_at_any_stage_only_fails_its_response_and_tells_nothing(stage: str) -> None:
    def broken(text: str) -> bool:
        raise ValueError("secret of the validator")

    async def serve(input: Any, model_options: Any = None) -> Any:
        if stage == "call":
            raise ValueError("secret of the call")
        script = [("raise", ValueError("secret of the backend"))] if stage == "backend" else words("a b")
        session = MelleaSession(ScriptedBackend(script), SimpleContext())
        if stage == "validator":
            return await session.ainstruct("x", requirements=[req("r", validation_fn=simple_validate(broken))])
        thunk: Any = await session.ainstruct("x", strategy=None, await_result=False, model_options=model_options)
        if stage == "cancelled":
            await asyncio.sleep(0)
            thunk._gen.generate.cancel()
        return thunk

    async with serving(serve) as url:
        with pytest.raises(openai.InternalServerError) as caught:
            await ask_at(url)
        with pytest.raises(openai.APIError) as streamed:
            await ask_at(url, streamed=True)
        health = await get(url, "/health")

    assert "secret" not in str(caught.value)
    assert "secret" not in str(streamed.value)
    assert health.status == 200


async def test_a_validator_that_sleeps_and_a_sync_call_in_an_async_program_stop_no_other_request() -> None:
    backend = ScriptedBackend(words("a b"))

    def slow(text: str) -> bool:
        time.sleep(0.6)
        return True

    async def serve(input: Any) -> Any:
        requirements = [req("r", validation_fn=simple_validate(slow))]
        return MelleaSession(backend, SimpleContext()).instruct("x", requirements=requirements)  # blocks its loop

    async with serving(serve) as url:
        asked = asyncio.ensure_future(ask_at(url))
        await asyncio.sleep(0.2)
        began = time.monotonic()
        assert (await get(url, "/health")).status == 200
        waited = time.monotonic() - began
        assert not asked.done()
        assert (await asked).output_text == "a b"

    assert waited < 0.4
