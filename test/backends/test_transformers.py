"""`TransformersBackend`: Mellea sessions over the engine, with a tiny random network that says what it is told to."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from mellea import MelleaSession
from mellea.backends import ModelOption
from mellea.backends.tools import MelleaTool
from mellea.core import CBlock, ImageBlock
from mellea.helpers.event_loop_helper import _run_async_in_thread
from mellea.stdlib.components import Instruction
from mellea.stdlib.components.chat import Message
from mellea.stdlib.context import ChatContext, SimpleContext
from mellea.stdlib.requirements import req, simple_validate
from mellea.stdlib.sampling import RejectionSamplingStrategy
from mellea.stdlib.streaming import stream
from pydantic import BaseModel, Field

pytest.importorskip("torch", reason="the engine is an extra")

from engine.tiny import Scripted, make_network, make_tokenizer

from mellea_responses.backends.transformers import TransformersBackend
from mellea_responses.context import to_context, to_message
from mellea_responses.engine.engine import Engine
from mellea_responses.errors import InvalidRequest, InvalidStructuredOutput
from mellea_responses.program.inputs import ChatMessage, ClientTool
from mellea_responses.program.user import UserProgram
from mellea_responses.runs import new_current
from mellea_responses.settings import Settings
from mellea_responses.turn import Call, CallArgs, Stop, Text, Turn, Usage, current_run
from mellea_responses.wire.request import CreateResponse
from mellea_responses.wire.tools import FunctionTool

GREEDY = {ModelOption.TEMPERATURE: 0.0, ModelOption.MAX_NEW_TOKENS: 24}
LIVE = {**GREEDY, ModelOption.STREAM: True}
CALL = '<tool_call>\n{"name": "look", "arguments": {"q": "x  y"}}\n</tool_call>'


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """One for all tests: starting it takes longer than most of them."""
    engine = Engine(Scripted(make_network(), make_tokenizer(), "tiny"), kv_cache_bytes=2**24, chunk=2048)
    engine.ready()
    yield engine
    engine.close()


@pytest.fixture
def model(engine: Engine) -> Iterator[Scripted]:
    model: Any = engine._model
    yield model
    model.script = model.fails_at = None


@pytest.fixture
def backend(engine: Engine, model: Scripted) -> TransformersBackend:
    return TransformersBackend(engine, model_options=GREEDY)


def session(backend: TransformersBackend, ctx: Any = None) -> MelleaSession[Any]:
    return MelleaSession(backend, ctx or ChatContext())


def prompt_of(backend: TransformersBackend, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every request that reaches the engine."""
    seen: list[Any] = []
    generate = backend.engine.generate

    def noting(request: Any) -> Any:
        seen.append(request)
        return generate(request)

    monkeypatch.setattr(backend.engine, "generate", noting)
    return seen


def look(q: str) -> str:
    """Looks.

    Args:
        q: At what.
    """
    return f"seen {q}"


def test_a_session_answers_and_counts(backend: TransformersBackend, model: Scripted) -> None:
    model.say("hello world")

    thunk = session(backend).instruct("hi", strategy=None)

    usage = thunk.generation.usage or {}
    assert thunk.value == "hello world"
    assert thunk.generation.finish_reasons == ["stop"]
    assert usage["completion_tokens"] > 0
    assert usage["prompt_tokens"] > 0
    assert (thunk.generation.model, thunk.generation.provider) == ("tiny", "transformers")


def test_a_limit_is_told_as_such(backend: TransformersBackend, model: Scripted) -> None:
    model.say("hello world hello world")

    thunk = session(backend).instruct("hi", strategy=None, model_options={"max_tokens": 2})

    assert thunk.generation.finish_reasons == ["length"]


def test_requirements_are_tried_again_until_they_hold(backend: TransformersBackend, model: Scripted) -> None:
    answers = iter(["the cat", "the mat"])
    validated: list[str] = []

    def says_mat(text: str) -> bool:
        validated.append(text)
        if "mat" not in text:
            model.say(next(answers))
        return "mat" in text

    model.say(next(answers))
    result = session(backend).instruct(
        "hi",
        requirements=[req("says mat", validation_fn=simple_validate(says_mat))],
        strategy=RejectionSamplingStrategy(loop_budget=2),
        return_sampling_results=True,
    )

    assert result.success
    assert [thunk.value for thunk in result.sample_generations] == ["the cat", "the mat"]


def test_the_second_turn_of_a_chat_uses_what_the_first_has_computed(
    backend: TransformersBackend, model: Scripted
) -> None:
    m = session(backend)
    model.say("hello")
    m.chat("the cat sat on the mat and said hello to the world")
    model.say("world")
    m.chat("and")

    last: Any = m.ctx.as_list()[-1]
    assert last.generation.usage["prompt_tokens_details"]["cached_tokens"] > 10


async def test_tokens_stream_one_by_one_and_thoughts_apart(backend: TransformersBackend, model: Scripted) -> None:
    model.say("hello the world")

    thunk = await session(backend).ainstruct("hi", strategy=None, await_result=False, model_options=LIVE)
    deltas = [delta async for delta in thunk]

    assert "".join(deltas) == "hello the world"
    assert len([delta for delta in deltas if delta]) > 2


async def test_mellea_s_own_streaming_works(backend: TransformersBackend, model: Scripted) -> None:
    model.say("the cat. the mat. ")

    async with await stream(Instruction("hi"), backend, SimpleContext(), chunking="sentence") as streamer:
        chunks = [chunk async for chunk in streamer]

    assert len(chunks) == 2
    assert streamer.full_text == "the cat. the mat. "


async def test_several_run_at_once_and_each_gets_its_own(backend: TransformersBackend) -> None:
    thunks = await asyncio.gather(
        *(session(backend).ainstruct(f"say {n}", strategy=None, model_options=GREEDY) for n in range(4))
    )
    again = [await session(backend).ainstruct(f"say {n}", strategy=None, model_options=GREEDY) for n in range(4)]

    assert [thunk.value for thunk in thunks] == [thunk.value for thunk in again]


@pytest.mark.parametrize("live", [True, False])
async def test_a_cancelled_generation_frees_the_model(backend: TransformersBackend, live: bool) -> None:
    options = {ModelOption.MAX_NEW_TOKENS: 1500, ModelOption.STREAM: live}
    thunk = await session(backend).ainstruct("hi", strategy=None, await_result=False, model_options=options)
    await asyncio.sleep(0.05)
    await thunk.aclose()

    async with asyncio.timeout(30):
        while backend.engine.counts()["rows"]:  # noqa: ASYNC110  # counted, not signalled
            await asyncio.sleep(0.01)
    assert thunk.cancelled


async def test_a_run_that_nobody_wants_any_more_frees_the_model(backend: TransformersBackend) -> None:
    run = new_current("ada", "r", Turn(CreateResponse(), ()))
    token = current_run.set(run)
    try:
        thunk = await session(backend).ainstruct(
            "hi", strategy=None, await_result=False, model_options={ModelOption.MAX_NEW_TOKENS: 1500}
        )
        run.cancelled.set()
        async with asyncio.timeout(10):
            await thunk.avalue()
    finally:
        current_run.reset(token)


async def test_a_failure_of_the_model_is_told_at_once(backend: TransformersBackend, model: Scripted) -> None:
    model.say("hello the world and more")
    model.fails_at = 2

    thunk = await session(backend).ainstruct("hi", strategy=None, await_result=False, model_options=LIVE)

    with pytest.raises(Exception, match="model"):
        await thunk.avalue()


# ---------------------------------------------------------------- tools


def test_a_tool_call_is_found_with_its_blanks_and_can_be_run(backend: TransformersBackend, model: Scripted) -> None:
    m = session(backend)
    model.say(CALL)

    thunk = m.instruct(
        "hi",
        strategy=None,
        tool_calls=True,
        model_options={ModelOption.TOOLS: [MelleaTool.from_callable(look)], ModelOption.MAX_NEW_TOKENS: 100},
    )

    [call] = thunk.tool_calls or ()
    assert call.call_func() == "seen x  y"
    assert (call.tool_call_id or "").startswith("call_")
    assert thunk.generation.finish_reasons == ["tool_calls"]


def test_an_earlier_call_and_its_output_are_in_the_next_prompt(
    backend: TransformersBackend, model: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = prompt_of(backend, monkeypatch)
    m = session(backend)
    options = {ModelOption.TOOLS: [MelleaTool.from_callable(look)], ModelOption.MAX_NEW_TOKENS: 100}
    model.say(CALL)
    [call] = m.instruct("hi", strategy=None, tool_calls=True, model_options=options).tool_calls or ()
    model.say("seen")

    m.act(Message("tool", "seen", tool_call_id=call.tool_call_id, tool_name="look"), strategy=None)

    asked, answered = seen[-1].messages[-2:]
    assert asked["tool_calls"] == [
        {"id": call.tool_call_id, "type": "function", "function": {"name": "look", "arguments": {"q": "x  y"}}}
    ]
    assert answered == {"role": "tool", "content": "seen", "tool_call_id": call.tool_call_id, "name": "look"}


def test_without_tool_calls_no_tool_is_offered(backend: TransformersBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = prompt_of(backend, monkeypatch)

    session(backend).instruct("hi", strategy=None, model_options={ModelOption.TOOLS: [MelleaTool.from_callable(look)]})

    assert seen[-1].tools == ()


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("required", "required"),
        ("look", {"type": "function", "name": "look"}),
        ({"type": "function", "function": {"name": "look"}}, {"type": "function", "name": "look"}),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "look"}}]}},
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
        ),
    ],
)
def test_a_tool_choice_in_any_shape_reaches_the_engine(
    backend: TransformersBackend, monkeypatch: pytest.MonkeyPatch, choice: Any, wanted: Any
) -> None:
    seen = prompt_of(backend, monkeypatch)
    options = {ModelOption.TOOLS: [MelleaTool.from_callable(look)], ModelOption.TOOL_CHOICE: choice}

    session(backend).instruct("hi", strategy=None, tool_calls=True, model_options=options)

    assert seen[-1].tool_choice == wanted


def test_the_owner_and_the_client_s_policy_come_from_the_run(
    backend: TransformersBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = prompt_of(backend, monkeypatch)
    shaped = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"properties": {}}}}
    turn = Turn(CreateResponse(), (), tools=(FunctionTool("look"),), tool_choice="required", parallel_tool_calls=False)
    token = current_run.set(new_current("ada", "r", turn))
    try:
        for tool in (ClientTool(shaped), MelleaTool.from_callable(look)):
            session(backend).instruct(
                "hi", strategy=None, tool_calls=True, model_options={ModelOption.TOOLS: [tool]}
            )  # fmt: skip
    finally:
        current_run.reset(token)

    assert [(one.owner, one.tool_choice, one.parallel_tool_calls) for one in seen] == [
        ("ada", "required", False),
        ("ada", "auto", True),
    ]


# ---------------------------------------------------------------- history, options, form


def test_a_client_s_conversation_is_a_context_with_calls_outputs_and_thoughts(
    backend: TransformersBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = prompt_of(backend, monkeypatch)
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}}
    given = [
        ChatMessage(role="system", content="be brief"),
        ChatMessage(role="user", content="hi"),
        ChatMessage(role="assistant", content="", tool_calls=[call], reasoning="hm"),
        ChatMessage(role="tool", content="42", tool_call_id="c1", name="look"),
    ]

    session(backend, to_context(given[:-1])).act(to_message(given[-1]), strategy=None)

    assert list(seen[-1].messages) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"q": 1}}}],
        },
        {"role": "tool", "content": "42", "tool_call_id": "c1", "name": "look"},
    ]


def test_a_system_prompt_takes_the_place_of_the_context_s(
    backend: TransformersBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = prompt_of(backend, monkeypatch)
    context = to_context([ChatMessage(role="system", content="old"), ChatMessage(role="user", content="u")])

    session(backend, context).chat("x", model_options={ModelOption.SYSTEM_PROMPT: "new"})

    assert [message["content"] for message in seen[-1].messages if message["role"] == "system"] == ["new"]


def test_options_reach_the_engine_under_its_names_and_unknown_ones_are_told_once(
    backend: TransformersBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = prompt_of(backend, monkeypatch)
    warned: list[str] = []
    monkeypatch.setattr(backend, "_warn", warned.append)

    session(backend).instruct(
        "hi",
        strategy=None,
        model_options={
            "top_p": 0.5,
            "max_tokens": 3,
            "stop": "x",
            ModelOption.SEED: 7,
            ModelOption.THINKING: True,
            "frobnicate": 1,
        },
    )

    options = seen[-1].options
    assert (options.temperature, options.top_p, options.max_output_tokens) == (0.0, 0.5, 3)
    assert (options.stop, options.seed, options.effort) == (("x",), 7, "medium")
    assert warned == ["frobnicate"]


class Person(BaseModel):
    name: str


class Odd(BaseModel):
    name: str = Field(json_schema_extra={"pattern": "^(?=x)"})  # no decoder looks ahead


def test_an_answer_is_held_to_the_wanted_form_and_fails_where_it_could_not_be(
    backend: TransformersBackend, model: Scripted
) -> None:
    model.say('{"name": "cat"} and more')
    thunk = session(backend).instruct("hi", strategy=None, format=Person)
    assert json.loads(thunk.value or "") == {"name": "cat"}

    model.say('{"name": "cat"}')
    with pytest.raises(InvalidStructuredOutput, match="does not match"):
        session(backend).instruct("hi", strategy=None, format=Odd)


def test_pictures_are_refused(backend: TransformersBackend) -> None:
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="

    with pytest.raises(InvalidRequest, match="text only"):
        session(backend).act(Message("user", "see", images=[ImageBlock(png)]), strategy=None)


def test_raw_prompts_are_continued_without_a_template(
    backend: TransformersBackend, model: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = prompt_of(backend, monkeypatch)
    model.say("on the mat")

    [thunk] = _run_async_in_thread(backend.generate_from_raw([CBlock("the cat sat ")], SimpleContext()))

    assert thunk.value == "on the mat"
    assert thunk.parsed_repr == "on the mat"
    assert thunk.is_computed()
    assert seen[-1].raw == "the cat sat "
    prompt = [token for tokens in model.fed for token in tokens][: (thunk.generation.usage or {})["prompt_tokens"]]
    assert model.tokenizer.decode(prompt) == "the cat sat "


def test_several_raw_prompts_are_several_answers(backend: TransformersBackend) -> None:
    thunks = _run_async_in_thread(
        backend.generate_from_raw([CBlock("the cat"), CBlock("the mat")], SimpleContext(), model_options=GREEDY)
    )

    assert len(thunks) == 2
    assert all(thunk.generation.usage for thunk in thunks)


async def test_a_closed_backend_says_so_and_an_engine_that_was_given_lives_on(backend: TransformersBackend) -> None:
    await backend.aclose()

    with pytest.raises(RuntimeError, match="closed"):
        await session(backend).ainstruct("hi", strategy=None)
    assert await session(TransformersBackend(backend.engine, model_options=GREEDY)).ainstruct("hi", strategy=None)


# ---------------------------------------------------------------- behind serve()


async def test_behind_serve_text_and_calls_stream_with_true_counts(
    backend: TransformersBackend, model: Scripted
) -> None:
    shaped = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"properties": {}}}}

    async def serve(turn: Any) -> Any:
        return await session(backend).ainstruct(
            "hi",
            strategy=None,
            await_result=False,
            tool_calls=True,
            model_options={**LIVE, ModelOption.TOOLS: [ClientTool(shaped)], ModelOption.MAX_NEW_TOKENS: 100},
        )

    model.say(f"hello {CALL}")
    program = UserProgram(serve, settings=Settings())
    try:
        run = new_current("ada", "r", Turn(CreateResponse(), ()))
        steps = [step async for batch in program.run(run) for step in batch]
    finally:
        program.close()

    assert "".join(step.text for step in steps if isinstance(step, Text)).strip() == "hello"
    assert [step.name for step in steps if isinstance(step, Call)] == ["look"]
    assert json.loads("".join(step.text for step in steps if isinstance(step, CallArgs))) == {"q": "x  y"}
    assert [type(step) for step in steps[-2:]] == [Usage, Stop]
