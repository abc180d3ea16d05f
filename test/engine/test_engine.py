import asyncio
import threading
from collections.abc import Callable

import pytest
from engine.tiny import GREEDY, Scripted, ask, assistant, make_network, make_tokenizer, request, text_of, user

from mellea_responses.engine.engine import Engine
from mellea_responses.errors import ContextLengthExceeded, Draining, InvalidRequest, ModelFailed
from mellea_responses.turn import Options, Stop, Text, Usage

Start = Callable[..., Engine]
AT_REST = {"rows": 0, "waiting": 0, "leases": 0}


def at_rest(engine: Engine) -> bool:
    return AT_REST.items() <= engine.counts().items()


async def settled(engine: Engine) -> None:
    while not at_rest(engine):  # noqa: ASYNC110  # the model thread tells nobody that it rests
        await asyncio.sleep(0.001)


async def test_an_answer_is_its_text_then_usage_then_stop(engine: Engine, model: Scripted) -> None:
    model.say("hello world")

    steps = await ask(engine, request(user("hello")))

    assert text_of(steps) == "hello world"
    assert isinstance(steps[-2], Usage)
    assert steps[-1] == Stop("stop")


async def test_counts_are_those_of_the_tokens_fed_and_chosen(engine: Engine, model: Scripted) -> None:
    model.say("hello world")
    said = len(model.script or ())

    steps = await ask(engine, request(user("hello")))

    usage = steps[-2]
    assert isinstance(usage, Usage)
    assert usage.input_tokens == len(model.fed[0])
    assert usage.output_tokens == said


async def test_an_emoji_split_over_tokens_arrives_whole(engine: Engine, model: Scripted) -> None:
    model.say("OK 🌊 bye")

    steps = await ask(engine, request(user("wave"), options=Options(max_output_tokens=50)))

    assert text_of(steps) == "OK 🌊 bye"
    assert all("\N{REPLACEMENT CHARACTER}" not in step.text for step in steps if isinstance(step, Text))


@pytest.mark.parametrize("limit", range(1, 8))
async def test_a_cut_in_the_middle_of_a_character_leaves_no_replacement(
    engine: Engine, model: Scripted, limit: int
) -> None:
    model.say("🌊🌊")

    steps = await ask(engine, request(user("wave"), options=Options(max_output_tokens=limit)))

    assert "🌊🌊".startswith(text_of(steps))
    assert steps[-1] == Stop("length")


async def test_a_stop_string_over_two_tokens_never_leaves(engine: Engine, model: Scripted) -> None:
    model.say("alpha END beta")

    steps = await ask(engine, request(user("go"), options=Options(stop=("END",), max_output_tokens=50)))

    assert text_of(steps) == "alpha "
    assert steps[-1] == Stop("stop")


async def test_what_only_looked_like_a_stop_string_leaves_at_the_end(engine: Engine, model: Scripted) -> None:
    model.say("alpha EN")

    steps = await ask(engine, request(user("go"), options=Options(stop=("END",), max_output_tokens=50)))

    assert text_of(steps) == "alpha EN"


async def test_a_limit_of_one_gives_one_token_and_says_length(engine: Engine, model: Scripted) -> None:
    model.say("hello world")

    steps = await ask(engine, request(user("hello"), options=Options(max_output_tokens=1)))

    assert steps[-2:] == [steps[-2], Stop("length")]
    assert isinstance(steps[-2], Usage)
    assert steps[-2].output_tokens == 1


async def test_a_limit_beyond_the_context_is_cut_to_what_is_left(started: Start) -> None:
    engine = started(Scripted(make_network(64), make_tokenizer(), "short"))

    steps = await ask(engine, request(user("hello"), options=Options(max_output_tokens=10**6, seed=1, temperature=2.0)))

    usage = steps[-2]
    assert isinstance(usage, Usage)
    assert usage.input_tokens + usage.output_tokens <= 64


async def test_the_engine_s_own_limit_holds_for_requests_without_one(started: Start, model: Scripted) -> None:
    engine = started(model, max_output_tokens=3)
    model.say("hello hello hello hello hello")

    steps = await ask(engine, request(user("hello"), options=Options()))

    assert steps[-1] == Stop("length")


async def test_a_prompt_longer_than_the_context_is_refused_before_anything_runs(engine: Engine) -> None:
    long = request(user("tide " * 1000))

    with pytest.raises(ContextLengthExceeded) as refused:
        engine.check(long)

    assert refused.value.param == "input"
    assert at_rest(engine)


async def test_check_counts_what_generate_feeds(engine: Engine, model: Scripted) -> None:
    asked = request(user("hello"))

    facts = engine.check(asked)
    steps = await ask(engine, asked)

    assert isinstance(steps[-2], Usage)
    assert facts.input_tokens == steps[-2].input_tokens
    assert facts.context_length == 2048
    assert facts.vision is False


async def test_no_messages_at_all_are_a_bad_request(engine: Engine) -> None:
    with pytest.raises(InvalidRequest):
        engine.check(request())

    with pytest.raises(InvalidRequest):
        await ask(engine, request())


async def test_an_empty_message_is_answered(engine: Engine, model: Scripted) -> None:
    model.say("hello")

    assert text_of(await ask(engine, request(user("")))) == "hello"


async def test_an_image_is_refused_with_its_place(engine: Engine) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}, "param": "input[0].content[1]"}
    asked = request({"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]})

    with pytest.raises(InvalidRequest) as refused:
        engine.check(asked)

    assert refused.value.param == "input[0].content[1]"


async def test_a_set_flag_ends_the_answer_within_one_token(engine: Engine, model: Scripted) -> None:
    model.say("hello " * 50)
    asked = request(user("hello"), options=Options(max_output_tokens=200))
    seen = []

    async for batch in engine.generate(asked):
        seen += batch
        asked.cancelled.set()

    assert not any(isinstance(step, Stop) for step in seen)
    assert at_rest(engine)


async def test_closing_the_iterator_stops_the_model(engine: Engine, model: Scripted) -> None:
    model.say("hello " * 50)
    answer = engine.generate(request(user("hello"), options=Options(max_output_tokens=200)))

    await anext(answer)
    await answer.aclose()
    await settled(engine)
    model.say("world")

    assert text_of(await ask(engine, request(user("again")))) == "world"
    assert at_rest(engine)


async def test_a_request_cancelled_in_the_queue_never_runs(engine: Engine, model: Scripted) -> None:
    model.say("hello " * 20)
    running = engine.generate(request(user("hello"), options=Options(max_output_tokens=200)))
    await anext(running)
    queued = request(user("second"))
    queued.cancelled.set()

    steps = await ask(engine, queued)
    await running.aclose()

    assert [type(step) for step in steps] == [Usage]
    assert "match" not in queued.notes


async def test_an_error_in_the_model_ends_its_request_and_only_that(engine: Engine, model: Scripted) -> None:
    model.say("hello world and cat")
    model.fails_at = 3
    seen = []

    async def read() -> None:
        async for batch in engine.generate(request(user("hello"))):
            seen.extend(batch)

    with pytest.raises(ModelFailed) as failed:
        await read()
    model.fails_at = None
    model.say("world")

    assert text_of(seen)
    assert "secret" not in str(failed.value)
    assert text_of(await ask(engine, request(user("hello")))) == "world"
    assert at_rest(engine)


async def test_logits_without_a_number_are_an_error_not_a_word(engine: Engine, model: Scripted) -> None:
    model.say("hello")
    model.network.lm_head.weight.data, kept = (
        model.network.lm_head.weight.data * float("nan"),
        (model.network.lm_head.weight.data),
    )
    model.script, model.fails_at = None, 10**6

    try:
        with pytest.raises(ModelFailed):
            await ask(engine, request(user("hello")))
    finally:
        model.network.lm_head.weight.data = kept


async def test_two_event_loops_are_served_at_the_same_time(engine: Engine, model: Scripted) -> None:
    def elsewhere() -> None:
        others.append(asyncio.run(ask(engine, request(user("there"), owner="b"))))

    others: list[list[object]] = []
    thread = threading.Thread(target=elsewhere)
    thread.start()
    here = await ask(engine, request(user("here"), owner="a"))
    await asyncio.to_thread(thread.join)

    assert isinstance(here[-1], Stop)
    assert isinstance(others[0][-1], Stop)


async def test_closing_while_an_answer_runs_ends_it_with_an_error(model: Scripted, started: Start) -> None:
    engine = started(model)
    model.say("hello " * 100)
    answer = engine.generate(request(user("hello"), options=Options(max_output_tokens=200)))
    await anext(answer)

    engine.close()

    with pytest.raises(Draining):
        async for _ in answer:
            pass
    with pytest.raises(Draining):
        await ask(engine, request(user("hello")))
    engine.close()
    assert at_rest(engine)


async def test_several_rows_at_once_say_what_each_says_alone(started: Start, model: Scripted) -> None:
    asked = [f"hello number {n} the cat" for n in range(4)]
    alone = started(model)
    expected = [text_of(await ask(alone, request(user(words), owner=words))) for words in asked]
    together = started(Scripted(model.network, model.tokenizer, "tiny"), rows=3, chunk=7)

    answers = await asyncio.gather(*(ask(together, request(user(words), owner=words)) for words in asked))

    assert [text_of(answer) for answer in answers] == expected


async def test_a_conversation_goes_on_with_its_own_tokens(engine: Engine, model: Scripted) -> None:
    first = request(user("hello"))
    answer = text_of(await ask(engine, first))
    model.say("good")

    second = request(user("hello"), assistant(answer), user("and now?"), options=GREEDY)
    await ask(engine, second)

    assert first.notes["match"] == "none"
    assert second.notes["match"] in {"exact", "text"}
    assert len(model.fed[0]) == second.notes["new"]
