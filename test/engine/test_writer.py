from itertools import groupby
from typing import Any

import pytest
from engine.tiny import Scripted, ask, make_tokenizer, request, text_of, user
from hypothesis import given
from hypothesis import strategies as st

from mellea_responses.engine.engine import Engine
from mellea_responses.engine.parse import make_splitter
from mellea_responses.engine.splice import Codec, Prompt
from mellea_responses.engine.vocabulary import Vocabulary
from mellea_responses.engine.writer import Writer
from mellea_responses.turn import Call, CallArgs, CallEnd, Options, Step, Stop, Text, Thought, Usage

TOKENIZER = make_tokenizer()
CODEC = Codec(TOKENIZER)
VOCABULARY = Vocabulary(TOKENIZER)
END = 0


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


def writer(stops: tuple[str, ...] = (), limit: int = 1000) -> Writer:
    return Writer(TOKENIZER, make_splitter(TOKENIZER, "", ()), ends=frozenset({END}), stops=stops, limit=limit)


def written(made: Writer, tokens: list[int]) -> list[Step]:
    steps: list[Step] = []
    for token in tokens:
        if made.reason is None:
            steps += made.take(token, VOCABULARY.described(token, -1.0, []))
    return steps


def whole(steps: list[Step]) -> list[Text]:
    """The texts of an answer, those of one phase as one."""
    texts = [step for step in steps if isinstance(step, Text)]
    runs = groupby(texts, key=lambda text: text.phase)
    return [Text("".join(text.text for text in run), phase=phase) for phase, run in runs]


def test_an_answer_in_three_parts_comes_back_as_one_message() -> None:
    made = writer()

    steps = written(made, [*ids('<think>hm</think>Well.<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>'), END])

    message = made.message()
    assert (message["reasoning_content"], message["content"]) == ("hm", "Well.")
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x":1}'}
    assert message["tool_calls"][0]["id"].startswith("call_")
    assert {type(step) for step in steps} == {Thought, Text, Call, CallArgs, CallEnd}


def test_only_tokens_of_reasoning_are_counted_as_reasoning() -> None:
    made = writer()

    written(made, [*ids("<think>the cat sat</think>on the mat"), END])

    assert len(ids("the cat sat")) <= made.reasoning_tokens <= len(ids("<think>the cat sat</think>"))


def test_a_stop_string_counts_in_text_but_not_in_reasoning_or_arguments() -> None:
    made = writer(stops=("STOP",))

    written(made, ids('<think>STOP?</think>a<tool_call>{"name":"f","arguments":{"x":"STOP"}}</tool_call>b STOP c'))

    assert made.message()["content"] == "ab "
    assert made.reason == "stop"


def test_the_phases_of_an_answer_are_told_and_no_stop_string_reaches_from_one_into_the_next() -> None:
    names = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>"]
    tokenizer = make_tokenizer("<|start|><|channel|>", special=names)
    made = Writer(tokenizer, make_splitter(tokenizer, "", ()), ends=frozenset({END}), stops=("okYes", "!"), limit=1000)

    steps = written(
        made,
        tokenizer.encode(
            "<|channel|>commentary<|message|>ok<|end|><|start|>assistant<|channel|>final<|message|>Yes! No.",
            add_special_tokens=False,
        ),
    )

    assert [(step.text, step.phase) for step in whole(steps)] == [("ok", "commentary"), ("Yes", "final_answer")]


def test_nothing_is_said_after_the_end() -> None:
    made = writer(stops=("b",))

    steps = written(made, [*ids("abc"), END])

    assert "".join(step.text for step in steps if isinstance(step, Text)) == "a"
    assert made.last() == Stop("stop")


@given(st.text(st.sampled_from("ab é🌊STOP"), max_size=30), st.sampled_from([(), ("STOP",), ("🌊", "OP")]))
def test_every_logprob_belongs_to_text_that_was_said(words: str, stops: tuple[str, ...]) -> None:
    made = writer(stops)

    steps = [step for step in written(made, [*ids(words), END]) if isinstance(step, Text)]

    said = "".join(step.text for step in steps)
    covered = b"".join(bytes(one.bytes) for step in steps for one in step.logprobs or ())
    assert covered.decode(errors="ignore").startswith(said.rstrip()) or stops
    assert said == "".join(step.text for step in made.said if isinstance(step, Text))


@given(st.lists(st.integers(0, 340), max_size=40), st.integers(1, 40))
def test_any_tokens_whatever_leave_a_trace_that_stands_for_them(tokens: list[int], limit: int) -> None:
    made, prompt = writer(limit=limit), Prompt("<|im_start|>a\n", (1, *ids("a\n")), ())

    written(made, tokens)
    if made.reason is None:
        made.finish("length")

    trace = made.trace(prompt)
    raw = TOKENIZER.decode(trace.tokens, skip_special_tokens=False).replace("\N{REPLACEMENT CHARACTER}", "")
    assert trace.text == raw
    assert all(joint.chars <= len(trace.text) and joint.tokens <= len(trace.tokens) for joint in trace.joints)


@pytest.mark.parametrize(("token", "raw"), [("é", "é".encode()), ("a", b"a"), ("<|im_end|>", b"<|im_end|>")])
def test_tokens_have_their_bytes(token: str, raw: bytes) -> None:
    assert b"".join(map(VOCABULARY.bytes_of, ids(token))) == raw


def test_half_a_character_is_named_by_its_bytes() -> None:
    token = ids("🌊")[0]

    assert VOCABULARY.described(token, -1.0, [(token, -1.0)]).token == "bytes:\\xf0"
    assert VOCABULARY.bytes_of(399) == b""


async def test_logprobs_come_with_their_text(engine: Engine, model: Scripted) -> None:
    model.say("hello world")
    options = Options(temperature=0.0, logprobs=True, top_logprobs=3, max_output_tokens=50)

    steps = await ask(engine, request(user("hello"), options=options))

    reported = [one for step in steps if isinstance(step, Text) for one in step.logprobs or ()]
    assert "".join(one.token for one in reported) == text_of(steps)
    assert all(len(one.top_logprobs) == 3 and one.logprob <= 0 for one in reported)


async def test_without_being_asked_for_there_are_no_logprobs(engine: Engine, model: Scripted) -> None:
    model.say("hello")

    steps = await ask(engine, request(user("hello")))

    assert all(step.logprobs is None for step in steps if isinstance(step, Text))


async def test_penalties_and_seeds_reach_the_model(engine: Engine) -> None:
    async def answer(**more: Any) -> list[Step]:
        return await ask(engine, request(user("hello"), options=Options(max_output_tokens=15, **more)))

    once, twice = text_of(await answer(temperature=1.2, seed=4)), text_of(await answer(temperature=1.2, seed=4))
    plain = text_of(await answer(temperature=0.0))
    punished = text_of(await answer(temperature=0.0, presence_penalty=2.0, frequency_penalty=2.0))
    usage = (await answer(temperature=0.0))[-2]

    assert once == twice
    assert plain != punished
    assert isinstance(usage, Usage)
