"""Every form in which a Mellea program may answer becomes steps, told apart and in order."""

import asyncio
import enum
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from mellea import MelleaSession, generative
from mellea.backends import ModelOption
from mellea.core import CBlock, ModelOutputThunk
from mellea.stdlib.components import Instruction
from mellea.stdlib.components.chat import Message
from mellea.stdlib.context import ChatContext, SimpleContext
from mellea.stdlib.requirements import simple_validate
from mellea.stdlib.sampling import RejectionSamplingStrategy
from mellea.stdlib.streaming import stream
from pydantic import BaseModel

from mellea_responses.errors import ModelFailed
from mellea_responses.program.bridge import NeverFinishes
from mellea_responses.program.inputs import ClientTool
from mellea_responses.program.returns import UnknownReturn
from mellea_responses.program.user import UserProgram
from mellea_responses.runs import new_current
from mellea_responses.settings import Settings
from mellea_responses.turn import Call, CallArgs, CallEnd, ItemDone, Step, Stop, Text, Thought, Turn, Usage
from mellea_responses.wire.items import Logprob
from mellea_responses.wire.request import CreateResponse
from support.mellea_backend import ScriptedBackend, Word, words

TURN = Turn(CreateResponse(), ())
LIVE = {ModelOption.STREAM: True}
TOOL = ClientTool(
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
        },
    }
)
CALL = {"name": "look", "arguments": '{"q": 5 }', "id": "call_theirs"}


async def said_by(serve: Callable[..., Any]) -> list[Step]:
    program = UserProgram(serve, settings=Settings())
    try:
        async with asyncio.timeout(30):
            return [step async for batch in program.run(new_current("ada", "r", TURN)) for step in batch]
    finally:
        program.close()


async def said_before_it_failed(serve: Callable[..., Any]) -> tuple[list[Step], Exception | None]:
    steps: list[Step] = []
    program = UserProgram(serve, settings=Settings())
    try:
        async for batch in program.run(new_current("ada", "r", TURN)):
            steps.extend(batch)
    except Exception as exc:
        return steps, exc
    finally:
        program.close()
    return steps, None


def returns(value: Any) -> Callable[..., Any]:
    def serve(turn: Any) -> Any:
        return value() if callable(value) else value

    return serve


def text_of(steps: list[Step]) -> str:
    return "".join(step.text for step in steps if isinstance(step, Text))


def calls_of(steps: list[Step]) -> list[tuple[str, str | None, str]]:
    return [
        (
            call.name,
            call.call_id,
            "".join(step.text for step in steps if isinstance(step, CallArgs) and step.key == call.key),
        )
        for call in steps
        if isinstance(call, Call)
    ]


def session(*script: Word, ctx: Any = None, **more: Any) -> MelleaSession[Any]:
    return MelleaSession(ScriptedBackend(script, **more), ctx or SimpleContext())


def no_log(steps: list[Step]) -> list[Step]:
    return [step for step in steps if not isinstance(step, Usage)]


# ---------------------------------------------------------------- finished values


async def test_a_computed_thunk_is_its_text_its_thoughts_its_cost_and_its_end() -> None:
    m = session(("think", "hm"), *words("a b"))

    steps = await said_by(returns(lambda: m.instruct("two words", strategy=None)))

    assert no_log(steps) == [Thought("hm"), Text("a b"), Stop()]
    [usage] = [step for step in steps if isinstance(step, Usage)]
    assert (usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens) == (3, 1, 2)


async def test_the_default_sampling_of_instruct_is_the_same() -> None:
    m = session(*words("a b"))

    assert no_log(await said_by(returns(lambda: m.instruct("x")))) == [Text("a b"), Stop()]


async def test_a_thunk_made_by_hand_is_its_text() -> None:
    assert await said_by(returns(ModelOutputThunk("by hand"))) == [Text("by hand"), Stop()]


@pytest.mark.parametrize(
    ("finish", "stop"), [("stop", Stop()), ("length", Stop("length")), ("content_filter", Stop("content_filter"))]
)
async def test_why_the_model_stopped_is_why_the_answer_stops(finish: str, stop: Stop) -> None:
    m = session(("text", "a"), finish=finish)

    assert (await said_by(returns(lambda: m.instruct("x", strategy=None))))[-1] == stop


async def test_of_a_sampling_result_the_chosen_attempt_is_said_and_every_attempt_is_paid() -> None:
    answers = iter([words("bad one"), words("good")])
    backend = ScriptedBackend(lambda heard: next(answers))
    m = MelleaSession(backend, SimpleContext())

    def serve(turn: Any) -> Any:
        return m.instruct(
            "x",
            requirements=[simple_req("good")],
            strategy=RejectionSamplingStrategy(loop_budget=2),
            return_sampling_results=True,
        )

    steps = await said_by(serve)

    assert no_log(steps) == [Text("good"), Stop()]
    assert [step.output_tokens for step in steps if isinstance(step, Usage)] == [3]


def simple_req(word: str) -> Any:
    from mellea.stdlib.requirements import req

    return req(f"says {word}", validation_fn=simple_validate(lambda text: word in text))


async def test_a_sampling_result_without_success_is_an_answer_all_the_same() -> None:
    m = session(("text", "bad"))

    def serve(turn: Any) -> Any:
        return m.instruct(
            "x",
            requirements=[simple_req("good")],
            strategy=RejectionSamplingStrategy(loop_budget=1),
            return_sampling_results=True,
        )

    assert text_of(await said_by(serve)) == "bad"


async def test_what_chat_gives_is_a_message() -> None:
    m = session(("think", "hm"), *words("hi there"), ctx=ChatContext())

    assert no_log(await said_by(returns(lambda: m.chat("hello")))) == [Thought("hm"), Text("hi there")]


async def test_a_message_s_calls_keep_their_ids_and_their_own_arguments() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"q": 5 }'}}

    steps = await said_by(returns(Message("assistant", "", tool_calls=[call])))

    assert calls_of(steps) == [("look", "call_1", '{"q": 5 }')]


async def test_the_last_thing_in_a_context_is_an_answer() -> None:
    m = session(*words("a b"), ctx=ChatContext())

    def serve(turn: Any) -> Any:
        m.chat("x")
        return m.ctx.as_list()[-1]

    assert no_log(await said_by(serve)) == [Text("a b"), Stop()]


class Person(BaseModel):
    name: str
    age: int


class Mood(enum.Enum):
    GOOD = "good"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("words", "words"),
        (Person(name="Ada", age=36), '{"name":"Ada","age":36}'),
        ([Person(name="Ada", age=36)], '[{"name":"Ada","age":36}]'),
        ({"one": Person(name="Ada", age=36)}, '{"one":{"name":"Ada","age":36}}'),
        (True, "true"),
        (3, "3"),
        ([1, "a", None], '[1,"a",null]'),
        (Mood.GOOD, '"good"'),
        (CBlock("block"), "block"),
    ],
)
async def test_a_plain_value_is_its_text_or_its_json(value: Any, text: str) -> None:
    assert await said_by(returns(value)) == [Text(text)]


async def test_a_generative_function_s_value_is_an_answer() -> None:
    @generative
    def person(text: str) -> Person:
        """Who is it about?"""

    m = session(("text", '{"result": {"name": "Ada", "age": 36}}'))

    steps = await said_by(returns(lambda: person(m, text="Ada, 36")))

    assert text_of(steps) == '{"name":"Ada","age":36}'


@pytest.mark.parametrize(
    "value", [[Text("a"), "b"], ("a", Text("b")), [Text("a"), [Text("b")]], [Text("a"), None, "b"]]
)
async def test_a_list_with_a_step_in_it_is_what_is_said_one_after_the_other(value: Any) -> None:
    assert text_of(await said_by(returns(lambda: value))) == "ab"


HALF, MENDED = "\ud800", "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (Call("k", "f", call_id=HALF), Call("k", "f", call_id=MENDED)),
        (Text("a", logprobs=[Logprob(HALF, -1.0, [])]), Text("a", logprobs=[Logprob(MENDED, -1.0, [])])),
        (ItemDone({"type": "web_search_call", "id": HALF}), ItemDone({"type": "web_search_call", "id": MENDED})),
    ],
)
async def test_half_a_character_leaves_no_step(step: Step, said: Step) -> None:
    assert (await said_by(returns(lambda: [step])))[0] == said


@pytest.mark.parametrize("value", [object(), ChatContext(), threading.Lock()])
async def test_what_is_no_answer_is_the_program_s_fault_and_named(value: Any) -> None:
    with pytest.raises(UnknownReturn, match=type(value).__name__):
        await said_by(returns(value))


async def test_a_placeholder_for_a_failure_is_a_failure() -> None:
    thunk: Any = ModelOutputThunk("sorry")
    thunk._error = ValueError("broken backend")

    with pytest.raises(ValueError, match="broken backend"):
        await said_by(returns(thunk))


# ---------------------------------------------------------------- calls


def calling(m: MelleaSession[Any]) -> Any:
    return m.instruct("x", strategy=None, tool_calls=True, model_options={ModelOption.TOOLS: [TOOL]})


async def test_a_call_s_id_is_the_backend_s_and_its_arguments_are_the_model_s_own() -> None:
    m = session(("call", CALL), payload=True)

    assert calls_of(await said_by(returns(lambda: calling(m)))) == [("look", "call_theirs", '{"q": 5 }')]


async def test_without_the_model_s_own_text_a_call_s_arguments_are_mellea_s() -> None:
    m = session(("call", CALL))

    assert calls_of(await said_by(returns(lambda: calling(m)))) == [("look", "call_theirs", '{"q":"5"}')]


async def test_a_call_without_an_id_gets_one_that_the_program_s_context_keeps() -> None:
    m = session(("call", {**CALL, "id": None}))
    made: list[ModelOutputThunk[Any]] = []

    def serve(turn: Any) -> Any:
        made.append(calling(m))
        return made[0]

    [(_, call_id, _)] = calls_of(await said_by(serve))

    [kept] = made[0].tool_calls or ()
    assert call_id is not None
    assert call_id == kept.tool_call_id
    assert call_id.startswith("call_")


async def test_two_calls_are_two_calls() -> None:
    m = session(("call", CALL), ("call", {**CALL, "id": "call_2", "arguments": '{"q": "b"}'}), payload=True)

    assert [call_id for _, call_id, _ in calls_of(await said_by(returns(lambda: calling(m))))] == [
        "call_theirs",
        "call_2",
    ]


# ---------------------------------------------------------------- while it is made


def live(*script: Word, **more: Any) -> Callable[..., Any]:
    """A program that returns a thunk before it is computed."""
    m = session(*script, **more)

    async def serve(turn: Any) -> Any:
        return await m.ainstruct("x", strategy=None, await_result=False, model_options=LIVE)

    return serve


async def test_a_thunk_streams_thoughts_and_words_one_by_one() -> None:
    steps = await said_by(live(("think", "h"), ("think", "m"), *words("a b c")))

    assert no_log(steps) == [Thought("h"), Thought("m"), Text("a "), Text("b "), Text("c"), Stop()]


async def test_an_uncomputed_thunk_without_a_stream_is_read_to_its_end() -> None:
    m = session(*words("a b"))

    async def serve(turn: Any) -> Any:
        return await m.ainstruct("x", strategy=None, await_result=False)

    assert no_log(await said_by(serve)) == [Text("a b"), Stop()]


async def test_a_call_s_arguments_stream_where_the_backend_streams_them() -> None:
    script: list[Word] = [
        ("delta", {"index": 0, "id": "call_1", "function": {"name": "look", "arguments": ""}}),
        ("delta", {"index": 0, "function": {"arguments": '{"q"'}}),
        ("delta", {"index": 0, "function": {"arguments": ":1}"}}),
        ("call", {**CALL, "id": "call_1"}),
    ]

    steps = no_log(await said_by(live(*script)))

    [key] = {step.key for step in steps if isinstance(step, Call | CallArgs | CallEnd)}
    assert steps == [
        Call(key, "look", call_id="call_1"),
        CallArgs(key, '{"q"'),
        CallArgs(key, ":1}"),
        CallEnd(key),
        Stop(),
    ]


async def test_each_word_leaves_before_the_next_is_made() -> None:
    m = session(*words("a "), ("pause", 0.5), *words("b"))

    async def serve(turn: Any) -> Any:
        return await m.ainstruct("x", strategy=None, await_result=False, model_options=LIVE)

    program = UserProgram(serve, settings=Settings())
    batches = program.run(new_current("ada", "r", TURN))
    try:
        async with asyncio.timeout(30):
            assert list(await anext(batches)) == [Text("a ")]
            assert m.backend.heard[0].said <= 2
    finally:
        await batches.aclose()
        program.close()


async def test_a_thunk_of_mellea_s_own_loop_is_read_there() -> None:
    from mellea.helpers.event_loop_helper import _run_async_in_thread

    m = session(*words("a b"))
    seen: list[Any] = []

    def serve(turn: Any) -> Any:
        thunk = _run_async_in_thread(m.ainstruct("x", strategy=None, await_result=False, model_options=LIVE))
        seen.extend(m.backend.heard[0].loops)
        return thunk

    async def serve_async(turn: Any) -> Any:
        return await asyncio.to_thread(serve, turn)

    assert text_of(await said_by(serve)) == "a b"
    assert text_of(await said_by(serve_async)) == "a b"
    assert set(seen) == {m.backend.heard[1].loops[0]}


async def test_a_thunk_of_a_sync_program_s_own_resting_loop_is_read_there() -> None:
    loop = asyncio.new_event_loop()
    m = session(*words("a b"))

    def serve(turn: Any) -> Any:
        return loop.run_until_complete(
            m.ainstruct("x", strategy=None, await_result=False, model_options=LIVE)
        )  # fmt: skip

    try:
        assert no_log(await said_by(serve)) == [Text("a "), Text("b"), Stop()]
    finally:
        loop.close()


async def test_a_thunk_whose_loop_is_closed_is_a_failure_at_once() -> None:
    m = session(*words("a b"), ("pause", 60))

    def serve(turn: Any) -> Any:
        return asyncio.run(m.ainstruct("x", strategy=None, await_result=False, model_options=LIVE))

    with pytest.raises(NeverFinishes, match="loop is closed"):
        await said_by(serve)


async def test_a_thunk_whose_loop_is_closed_but_that_had_come_to_its_end_is_read() -> None:
    m = session(*words("a b"))

    async def make() -> Any:
        thunk = await m.ainstruct("x", strategy=None, await_result=False, model_options=LIVE)
        await asyncio.wait({thunk._gen.generate})
        return thunk

    assert text_of(await said_by(returns(lambda: asyncio.run(make())))) == "a b"


async def test_a_thunk_whose_generation_was_cancelled_is_a_failure_at_once() -> None:
    m = session(*words("a b"), ("pause", 60))

    async def serve(turn: Any) -> Any:
        thunk = await m.ainstruct("x", strategy=None, await_result=False, model_options=LIVE)
        thunk._gen.generate.cancel()
        return thunk

    with pytest.raises(NeverFinishes, match="cancelled"):
        await said_by(serve)


async def test_a_thunk_whose_generation_is_cancelled_while_it_is_read_is_a_failure() -> None:
    m = session(*words("a b"), ("pause", 60))

    async def serve(turn: Any) -> Any:
        thunk = await m.ainstruct("x", strategy=None, await_result=False, model_options=LIVE)
        asyncio.get_running_loop().call_later(0.1, thunk._gen.generate.cancel)
        return thunk

    with pytest.raises(NeverFinishes, match="cancelled"):
        await said_by(serve)


async def test_a_thunk_that_nobody_computes_is_a_failure_at_once() -> None:
    with pytest.raises(RuntimeError, match="NONE"):
        await said_by(returns(ModelOutputThunk(None)))


async def test_the_first_failure_ends_the_answer() -> None:
    steps, error = await said_before_it_failed(
        live(*words("a b "), ("pause", 0.1), ("raise", ValueError("broken")))
    )  # fmt: skip

    assert text_of(steps) == "a b "
    assert str(error) == "broken"


@pytest.mark.parametrize("sync", [True, False])
async def test_when_nobody_listens_any_more_the_generation_is_cancelled(sync: bool) -> None:
    from mellea.helpers.event_loop_helper import _run_async_in_thread

    m = session(("text", "a"), ("pause", 60), ("text", "b"))

    def make() -> Any:
        return m.ainstruct("x", strategy=None, await_result=False, model_options=LIVE)

    def serve(turn: Any) -> Any:
        return _run_async_in_thread(make())

    async def serve_async(turn: Any) -> Any:
        return await make()

    program = UserProgram(serve if sync else serve_async, settings=Settings())
    batches = program.run(new_current("ada", "r", TURN))
    await anext(batches)
    await batches.aclose()

    async with asyncio.timeout(5):
        while not m.backend.heard[0].closed:  # noqa: ASYNC110  # a thread of Mellea closes it
            await asyncio.sleep(0.01)
    program.close()


async def test_what_was_streamed_stands_and_another_ending_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    m = session(*words("a b"))

    async def serve(turn: Any) -> Any:
        thunk: Any = await m.ainstruct("x", strategy=None, await_result=False, model_options=LIVE)
        finish = thunk._gen.post_process

        async def rewrite(made: Any) -> None:
            await finish(made)
            made._underlying_value = "other"

        thunk._gen.post_process = rewrite
        return thunk

    assert text_of(await said_by(serve)) == "a b"
    assert "ended with others" in caplog.text


# ---------------------------------------------------------------- streams, generators and pieces


async def streamed(*script: Word, **more: Any) -> Any:
    return await stream(Instruction("x"), ScriptedBackend(script), SimpleContext(), **more)


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("chunking", [None, "word", "sentence"])
async def test_a_streamer_s_answer_is_whole_whatever_its_chunks_leave_out(chunking: Any, events: bool) -> None:
    async def serve(turn: Any) -> Any:
        return await streamed(("think", "hm"), *words("One two.  Three four. "), chunking=chunking, as_events=events)

    steps = await said_by(serve)

    assert text_of(steps) == "One two.  Three four. "
    assert len([step for step in steps if isinstance(step, Text)]) > 1
    assert steps[-1] == Stop()
    assert any(isinstance(step, Usage) for step in steps)


@pytest.mark.parametrize("events", [False, True])
async def test_a_streamer_that_a_requirement_stopped_is_a_failure_after_what_was_said(events: bool) -> None:
    from mellea.core import PartialValidationResult, Requirement

    class NoBad(Requirement):
        async def stream_validate(self, chunk: str, *, backend: Any, ctx: Any, flush: bool = False) -> Any:
            return [PartialValidationResult("fail" if "bad" in chunk else "unknown", reason="said bad")]

    async def serve(turn: Any) -> Any:
        return await streamed(*words("good bad more"), chunking="word", requirements=[NoBad("n")], as_events=events)

    steps, error = await said_before_it_failed(serve)

    assert text_of(steps) == "good"
    assert isinstance(error, ModelFailed)


async def test_pieces_of_a_generator_may_be_any_of_these() -> None:
    m = session(*words("a b"))

    def serve(turn: Any) -> Iterator[Any]:
        yield "first "
        yield m.instruct("x", strategy=None)
        yield Message("assistant", " then ")
        yield ModelOutputThunk("last")

    async def serve_async(turn: Any) -> AsyncIterator[Any]:
        yield "first "
        yield await m.ainstruct("x", strategy=None, await_result=False, model_options=LIVE)
        yield " then last"

    assert text_of(await said_by(serve)) == "first a b then last"
    assert text_of(await said_by(serve_async)) == "first a b then last"


async def test_several_outputs_in_one_answer_add_up_and_only_the_last_one_ends_it() -> None:
    m = session(*words("a b"), finish="length")

    def serve(turn: Any) -> Iterator[Any]:
        yield m.instruct("x", strategy=None)
        yield m.instruct("x", strategy=None)

    steps = await said_by(serve)

    assert [step.output_tokens for step in steps if isinstance(step, Usage)] == [2, 4]
    assert [step for step in steps if isinstance(step, Stop)] == [Stop("length")]
