"""Reuse changes what a turn costs, never what it says: greedy answers over kept caches equal cold ones."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from engine.tiny import CHATML, Readable, Scripted, ask, assistant, make_tokenizer, request, text_of, user

from mellea_responses.engine.engine import Engine
from mellea_responses.engine.request import GenerateRequest
from mellea_responses.turn import Call, CallArgs, Options, Step, Thought, Usage

Start = Callable[..., Engine]
GREEDY = Options(temperature=0.0, max_output_tokens=10)
WILD = Options(temperature=1.6, seed=5, max_output_tokens=16)

LONG = Options(temperature=0.0, max_output_tokens=80)

KEEPS_THINKING = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m.reasoning_content %}<think>{{ m.reasoning_content }}"
    "</think>{% endif %}{{ m['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% endif %}"
)
DROPS_THINKING = KEEPS_THINKING.replace("m.reasoning_content %}", "m.reasoning_content and loop.last %}")
TOOL = {"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object"}}}


class Fed(Scripted):
    """Remembers the tokens behind each forward pass, cached ones included."""

    def forward(self, tokens: Any, cache: Any) -> Any:
        behind = getattr(cache, "tokens_behind", []) if cache is not None else []
        if cache is not None:
            cache.tokens_behind = [*behind[: cache.get_seq_length()], *tokens]
            self.seen = cache.tokens_behind
        return super().forward(tokens, cache)


class Left(Fed):
    """Nobody wants the answer any more when all that is written was said."""

    asked: GenerateRequest | None = None

    def forward(self, tokens: Any, cache: Any) -> Any:
        logits = super().forward(tokens, cache)
        if self.asked is not None and not self.script:
            self.asked.cancelled.set()
        return logits


@pytest.fixture
def fed(model: Scripted) -> Fed:
    return Fed(model.network, model.tokenizer, "tiny")


def generated(engine: Engine) -> list[int]:
    """The tokens of the newest turn."""
    trace = engine._store.traces("")[0]
    return list(trace.tokens)


def with_template(model: Scripted, template: str) -> Scripted:
    tokenizer = make_tokenizer(template)
    return Scripted(model.network, tokenizer, "tiny")


async def cold_continuation(start: Start, fed: Fed, tokens: list[int], count: int) -> list[int]:
    """What the bare network says after these tokens, with one forward pass a token and no cache."""
    said: list[int] = []
    for _ in range(count):
        said.append(int(Readable.forward(fed, [*tokens, *said], None).argmax()))
        if said[-1] in fed.ends:
            break
    return said


@pytest.mark.parametrize("seed", range(6))
async def test_any_mixture_of_turns_branches_and_edits_answers_as_a_cold_model_does(
    started: Start, fed: Fed, seed: int
) -> None:
    engine, chance = started(fed, chunk=16), random.Random(seed)
    history: list[dict[str, Any]] = []
    for turn in range(8):
        history = edited(history, chance)
        asked = request(*history, user(f"the cat {chance.random()}"), options=GREEDY)

        answer = text_of(await ask(engine, asked))

        prompt = fed.seen[: int(asked.notes["cached"] + asked.notes["new"])]
        said = generated(engine)[len(prompt) :]
        assert said == await cold_continuation(started, fed, prompt, len(said)), f"turn {turn}, {asked.notes}"
        history = [*asked.messages, assistant(answer)]


def edited(history: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    kind = chance.choice(["as it is", "as it is", "as it is", "cut", "changed", "new"])
    if kind == "cut":
        return history[: 2 * chance.randint(0, len(history) // 2)]
    if kind == "changed" and history:
        at = chance.randrange(len(history))
        return [*history[:at], {**history[at], "content": history[at]["content"] + " mat"}, *history[at + 1 :]]
    return [] if kind == "new" else history


async def test_what_is_fed_is_the_prompt_whatever_was_reused(started: Start, fed: Fed) -> None:
    engine = started(fed)
    first = request(user("hello"), options=WILD)
    answer = text_of(await ask(engine, first))

    second = request(user("hello"), assistant(answer), user("more"), options=WILD)
    await ask(engine, second)

    length = int(second.notes["cached"] + second.notes["new"])
    rendered = engine._prompter.template.render(list(second.messages))
    assert fed.tokenizer.decode(fed.seen[:length], skip_special_tokens=False) == rendered


@pytest.mark.parametrize("seed", range(10))
async def test_a_sampled_answer_is_continued_exactly_however_unlikely_its_tokens(engine: Engine, seed: int) -> None:
    options = Options(temperature=1.8, seed=seed, max_output_tokens=20)
    first = request(user("hello"), options=options)
    steps = await ask(engine, first)
    usage = steps[-2]
    assert isinstance(usage, Usage)

    second = request(user("hello"), assistant(text_of(steps)), user("more"), options=options)
    await ask(engine, second)

    ended = usage.output_tokens < 20
    assert second.notes["match"] == "exact" or not ended
    if second.notes["match"] == "exact":
        assert second.notes["cached"] == usage.input_tokens + usage.output_tokens - 1


async def test_a_branch_reuses_the_turn_it_starts_from(engine: Engine) -> None:
    first = request(user("hello the cat"))
    answer = text_of(await ask(engine, first))
    await ask(engine, request(*first.messages, assistant(answer), user("one way")))

    branch = request(*first.messages, assistant(answer), user("another way"))
    await ask(engine, branch)

    assert branch.notes["match"] == "exact"
    assert branch.notes["cached"] > first.notes["new"]


async def test_a_branch_from_an_edited_answer_is_no_continuation(engine: Engine) -> None:
    first = request(user("hello the cat"))
    answer = text_of(await ask(engine, first))
    await ask(engine, request(*first.messages, assistant(answer), user("one way")))

    edited = request(*first.messages, assistant(f"{answer}!"), user("one way"))
    await ask(engine, edited)

    assert edited.notes["match"] == "text"


async def test_two_conversations_and_a_stranger_each_continue_their_own(engine: Engine) -> None:
    async def turn(history: list[dict[str, Any]], words: str, owner: str) -> GenerateRequest:
        asked = request(*history, user(words), owner=owner)
        history[:] = [*asked.messages, assistant(text_of(await ask(engine, asked)))]
        return asked

    ada: list[dict[str, Any]] = []
    bob: list[dict[str, Any]] = []
    await turn(ada, "hello the cat sat", "coder")
    await turn(bob, "world of system calls", "coder")
    stranger = await turn([], "hello the cat sat", "curl")
    again = await turn(ada, "and the mat", "coder")
    other = await turn(bob, "and the tools", "coder")

    assert stranger.notes["match"] == "none"
    assert stranger.notes["cached"] == 0
    assert again.notes["match"] == other.notes["match"] == "exact"


async def test_without_a_cache_nothing_is_reused_and_nothing_changes(started: Start, model: Scripted) -> None:
    kept, forgetful = started(model), started(Scripted(model.network, model.tokenizer, "tiny"), kv_cache=False)
    model.say("hello cat")
    await ask(kept, request(user("hello")))
    model.script = None
    history = (user("hello"), assistant("hello cat"), user("more"))

    warm, cold = request(*history), request(*history)
    steps = [await ask(kept, warm), await ask(forgetful, cold)]
    written = [step.cache_write_tokens for one in steps for step in one if isinstance(step, Usage)]

    assert text_of(steps[0]) == text_of(steps[1])
    assert written[0] > 0 == written[1]
    assert warm.notes["cached"]
    assert not cold.notes["cached"]
    assert cold.notes["match"] == "none"
    assert forgetful.counts()["snapshots"] == 0


async def test_an_answer_to_a_call_continues_the_call_as_the_model_wrote_it(engine: Engine, model: Scripted) -> None:
    model.say('<tool_call>{"name":"add","arguments":{"x":1,   "y":2}}</tool_call>')
    first = request(user("1+2?"), tools=(TOOL,), options=LONG)
    steps = await ask(engine, first)
    history = (user("1+2?"), called(steps), {"role": "tool", "tool_call_id": call_id(steps), "content": "3"})
    model.say("three")

    second = request(*history, tools=(TOOL,), options=LONG)
    await ask(engine, second)

    usage = steps[-2]
    assert isinstance(usage, Usage)
    assert second.notes["match"] == "call id"
    assert second.notes["cached"] == usage.input_tokens + usage.output_tokens - 1


@pytest.mark.parametrize("change", ["name", "arguments", "id"])
async def test_an_edited_call_is_the_client_s_truth(engine: Engine, model: Scripted, change: str) -> None:
    model.say('<tool_call>{"name":"add","arguments":{"x":1,   "y":2}}</tool_call>')
    steps = await ask(engine, request(user("1+2?"), tools=(TOOL,), options=LONG))
    message = called(steps)
    if change == "id":
        message["tool_calls"][0]["id"] = "call_other"
    else:
        message["tool_calls"][0]["function"][change] = {"name": "sub", "arguments": {"x": 1, "y": 3}}[change]
    model.say("three")

    second = request(
        user("1+2?"), message, {"role": "tool", "tool_call_id": "x", "content": "3"}, tools=(TOOL,), options=LONG
    )
    await ask(engine, second)

    assert second.notes["match"] == "text"


@pytest.mark.parametrize(
    ("template", "match"), [(KEEPS_THINKING, "visible"), (DROPS_THINKING, "text")], ids=["kept", "dropped"]
)
async def test_hidden_reasoning_is_put_back_where_the_template_keeps_it(
    started: Start, model: Scripted, template: str, match: str
) -> None:
    model = with_template(model, template)
    engine = started(model)
    model.say("<think>deep</think>good")
    steps = await ask(engine, request(user("hello"), options=LONG))
    model.say("ok")

    second = request(user("hello"), assistant("good"), user("why?"))
    await ask(engine, second)

    assert any(isinstance(step, Thought) for step in steps)
    assert second.notes["match"] == match
    await ask(engine, stranger := request(user("hello"), assistant("good"), user("why?"), owner="bob"))
    assert stranger.notes["match"] == "none"


async def test_reasoning_survives_two_turns_of_a_client_that_never_sends_it(started: Start, model: Scripted) -> None:
    model = with_template(model, KEEPS_THINKING)
    engine = started(model)
    history: list[dict[str, Any]] = []
    matches = []
    for word in ("one", "two", "three"):
        model.say(f"<think>about {word}</think>{word}")
        asked = request(*history, user(f"say {word}"), options=LONG)
        await ask(engine, asked)
        matches.append(asked.notes["match"])
        history = [*asked.messages, assistant(word)]

    assert matches == ["none", "visible", "visible"]


async def test_a_turn_cut_by_a_stop_string_does_not_bring_the_cut_words_back(engine: Engine, fed: Fed) -> None:
    engine._model, engine._worker._model = fed, fed
    fed.say("alpha END beta")
    options = Options(stop=("END",), max_output_tokens=50)
    said = text_of(await ask(engine, request(user("go"), options=options)))
    fed.say("ok")

    second = request(user("go"), assistant(said), user("on"))
    await ask(engine, second)

    length = int(second.notes["cached"] + second.notes["new"])
    assert "END" not in fed.tokenizer.decode(fed.seen[:length])


@pytest.mark.parametrize("held", ["EN", " \n"], ids=["what may be a stop string", "blanks before what may follow"])
async def test_a_cancelled_turn_does_not_bring_back_what_had_not_left(
    started: Start, model: Scripted, held: str
) -> None:
    left = Left(model.network, model.tokenizer, "tiny")
    engine = started(left, chunk=2048)
    left.say(f"alpha{held}", end=False)
    left.asked = request(user("go"), options=Options(stop=("END",), max_output_tokens=50))
    words = text_of(await ask(engine, left.asked))
    left.say("ok")

    second = request(user("go"), assistant(words), user("on"))
    await ask(engine, second)

    length = int(second.notes["cached"] + second.notes["new"])
    assert words == "alpha"
    assert left.tokenizer.decode(left.seen[:length]) == engine._prompter.template.render(list(second.messages))


@pytest.mark.parametrize("budget", [0, 1000])
async def test_what_is_too_large_to_keep_is_not_said_to_be_written(
    started: Start, model: Scripted, budget: int
) -> None:
    engine = started(model, kv_cache_bytes=budget)

    usage = (await ask(engine, request(user("hello"))))[-2]

    assert isinstance(usage, Usage)
    assert usage.cache_write_tokens == 0 == engine.counts()["snapshots"]


async def test_a_storm_of_cancelled_requests_leaves_nothing_behind(engine: Engine) -> None:
    chance = random.Random(3)

    async def one(number: int) -> None:
        asked = request(user(f"hello {number % 5}"), owner=str(number % 3), options=WILD)
        answer = engine.generate(asked)
        for _ in range(chance.randrange(4)):
            await anext(answer, None)
        if number % 2:
            asked.cancelled.set()
        await answer.aclose()

    await asyncio.gather(*(one(number) for number in range(120)))
    while engine.counts()["rows"] + engine.counts()["waiting"]:  # noqa: ASYNC110  # the model thread tells nobody
        await asyncio.sleep(0.001)

    counts = engine.counts()
    assert (counts["rows"], counts["waiting"], counts["leases"]) == (0, 0, 0)
    assert counts["snapshots"] <= 15
    assert counts["bytes"] <= 2**24


async def test_a_long_chain_stays_within_the_budget(started: Start, model: Scripted) -> None:
    engine = started(model, kv_cache_bytes=60_000)
    history: list[dict[str, Any]] = []
    for turn in range(40):
        asked = request(*history[-8:], user(f"the cat {turn}"), options=Options(max_output_tokens=3))
        history = [*asked.messages, assistant(text_of(await ask(engine, asked)))]

        assert engine.counts()["bytes"] <= 60_000


def called(steps: list[Step]) -> dict[str, Any]:
    call = next(step for step in steps if isinstance(step, Call))
    arguments = "".join(step.text for step in steps if isinstance(step, CallArgs))
    function = {"name": call.name, "arguments": arguments}
    return assistant("", tool_calls=[{"id": call.call_id, "type": "function", "function": function}])


def call_id(steps: list[Step]) -> str | None:
    return next(step for step in steps if isinstance(step, Call)).call_id


def test_the_templates_here_differ_from_the_plain_one() -> None:
    assert CHATML not in {KEEPS_THINKING, DROPS_THINKING}
