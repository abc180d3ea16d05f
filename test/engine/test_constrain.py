"""A real engine over a random network, held to forms and calls: what such a network would never say by itself."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine.tiny import Scripted, ask, assistant, make_network, make_tokenizer, request, text_of, user
from jsonschema_rs import validator_for
from tokenizers.decoders import Metaspace

from mellea_responses.engine.constrain import Grammars
from mellea_responses.engine.engine import Engine
from mellea_responses.engine.selfcheck import Features
from mellea_responses.turn import Call, CallArgs, CallEnd, Format, Options, Step, Stop, Usage

Start = Callable[..., Engine]
SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["a", "b"]},
        "size": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 2},
    },
    "required": ["kind", "size", "tags"],
    "additionalProperties": False,
}
FORM = Format("json_schema", "f", SCHEMA)
LONG = Options(temperature=0.0, max_output_tokens=300)
WILD = Options(temperature=1.5, max_output_tokens=1500, seed=1)


def tool(name: str, parameters: dict[str, Any] = SCHEMA) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


TOOLS = (tool("add"), tool("now", {"type": "object", "properties": {}, "additionalProperties": False}))


def calls_of(steps: list[Step]) -> list[tuple[str, Any]]:
    names = {step.key: step.name for step in steps if isinstance(step, Call)}
    ended = [step.key for step in steps if isinstance(step, CallEnd)]
    return [
        (names[key], json.loads("".join(s.text for s in steps if isinstance(s, CallArgs) and s.key == key)))
        for key in ended
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 1.5}, {"temperature": 1.0, "top_p": 0.9}])
async def test_an_answer_in_a_form_always_fits(engine: Engine, options: dict[str, Any], seed: int) -> None:
    asked = Options(max_output_tokens=300, seed=seed, **options)

    steps = await ask(engine, request(user(f"hello {seed}"), options=asked, format=FORM))

    assert validator_for(SCHEMA).is_valid(json.loads(text_of(steps)))
    assert steps[-1] == Stop("stop")


async def test_a_form_is_kept_whatever_is_likely(engine: Engine, model: Scripted) -> None:
    model.say("I would rather talk about cats.")

    steps = await ask(engine, request(user("hello"), options=LONG, format=FORM))

    assert validator_for(SCHEMA).is_valid(json.loads(text_of(steps)))


async def test_what_already_fits_is_said_as_the_model_would_say_it(engine: Engine, model: Scripted) -> None:
    model.say('{"kind": "b", "size": 7,\n  "tags": []}')

    steps = await ask(engine, request(user("hello"), options=LONG, format=FORM))

    assert text_of(steps) == '{"kind": "b", "size": 7,\n  "tags": []}'


async def test_an_answer_that_is_cut_ends_by_its_length(engine: Engine) -> None:
    options = Options(temperature=0.0, max_output_tokens=3)

    steps = await ask(engine, request(user("hello"), options=options, format=FORM))

    assert steps[-1] == Stop("length")
    assert text_of(steps).startswith("{")


async def test_the_same_seed_gives_the_same_answer_alone_and_after_others(engine: Engine) -> None:
    options = Options(temperature=1.0, seed=3, max_output_tokens=200)
    first = await ask(engine, request(user("hello"), options=options, format=FORM))
    await ask(engine, request(user("other"), options=WILD))

    again = await ask(engine, request(user("hello"), options=options, format=FORM))

    assert text_of(first) == text_of(again)


async def test_the_next_turn_continues_an_answer_in_a_form(engine: Engine) -> None:
    first = await ask(engine, request(user("hello"), options=LONG, format=FORM))
    usage = first[-2]
    assert isinstance(usage, Usage)

    after = request(user("hello"), assistant(text_of(first)), user("more"), options=LONG)
    await ask(engine, after)

    assert after.notes["match"] == "exact"
    assert after.notes["cached"] == usage.input_tokens + usage.output_tokens - 1


@pytest.mark.parametrize("options", [LONG, WILD])
async def test_an_answer_that_must_call_calls_a_declared_tool(engine: Engine, options: Options) -> None:
    steps = await ask(engine, request(user("hello"), options=options, tools=TOOLS, tool_choice="required"))

    calls = calls_of(steps)
    assert calls
    assert text_of(steps) == ""
    for name, arguments in calls:
        schema = next(one["function"]["parameters"] for one in TOOLS if one["function"]["name"] == name)
        assert validator_for(schema).is_valid(arguments)


async def test_a_named_tool_is_called_once(engine: Engine) -> None:
    asked = request(
        user("hello"), options=WILD, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "now"}},
    )  # fmt: skip

    assert calls_of(await ask(engine, asked)) == [("now", {})]


async def test_a_name_that_nobody_declared_is_never_called(engine: Engine, model: Scripted) -> None:
    model.say('<tool_call>\n{"name": "command", "arguments": {}}\n</tool_call>')

    steps = await ask(engine, request(user("hello"), options=LONG, tools=TOOLS))

    assert {step.name for step in steps if isinstance(step, Call)} <= {"add", "now"}


async def test_an_allowed_call_and_plain_text_are_said_as_the_model_would_say_them(
    engine: Engine, model: Scripted
) -> None:
    model.say('Look.\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
    called = await ask(engine, request(user("hello"), options=LONG, tools=TOOLS))
    model.say("<tool_calls> are {fine}.")
    spoken = await ask(engine, request(user("bye"), options=LONG, tools=TOOLS))

    assert calls_of(called) == [("now", {})]
    assert text_of(called) == "Look."
    assert text_of(spoken) == "<tool_calls> are {fine}."


async def test_a_tool_whose_schema_the_decoder_cannot_keep_leaves_the_answer_to_the_guard(
    engine: Engine, model: Scripted
) -> None:
    awkward = tool("odd", {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(?=a)b"}}})
    model.say('<tool_call>\n{"name": "odd", "arguments": {"x": "c"}}\n</tool_call>')

    steps = await ask(engine, request(user("hello"), options=LONG, tools=(awkward,), tool_choice="required"))

    assert calls_of(steps) == [("odd", {"x": "c"})]


async def test_the_lane_of_generate_keeps_to_a_form_too(started: Start) -> None:
    model = Scripted(make_network(), make_tokenizer(), "tiny")
    engine = started(model)
    engine._worker.features = Features()

    steps = await ask(engine, request(user("hello"), options=LONG, format=FORM))

    assert validator_for(SCHEMA).is_valid(json.loads(text_of(steps)))


@pytest.mark.parametrize("schema", [
    {"enum": ["x" * 150_000]},
    {"type": "integer", "multipleOf": 1_000_003},
    {"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}, {"multipleOf": 0}]},
    {"const": "\ud800"},
    {"properties": {"a": {"type": 5}}},
], ids=["long", "many remainders", "many together", "no text", "no schema"])  # fmt: skip
async def test_a_form_that_no_grammar_can_be_made_of_in_time_leaves_the_answer_free(
    engine: Engine, model: Scripted, schema: dict[str, Any]
) -> None:
    model.say("What?")

    steps = await ask(engine, request(user("hello"), options=LONG, format=Format("json_schema", "f", schema)))

    assert text_of(steps) == "What?"


async def test_multiples_that_are_usual_are_kept(engine: Engine) -> None:
    schema = {"type": "array", "items": {"type": "number", "multipleOf": 0.25}, "minItems": 1, "maxItems": 2}

    steps = await ask(engine, request(user("hello"), options=WILD, format=Format("json_schema", "f", schema)))

    assert validator_for(schema).is_valid(json.loads(text_of(steps)))


def test_a_vocabulary_that_cannot_be_read_leaves_answers_free() -> None:
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.decoder = Metaspace()
    grammars = Grammars(tokenizer, len(tokenizer), frozenset([0]))

    assert grammars.for_answer(request(user("hello"), format=FORM), "", taught=False) is None
    assert not grammars.usable


def test_an_end_that_is_no_token_does_not_count() -> None:
    tokenizer = make_tokenizer()

    assert not Grammars(tokenizer, len(tokenizer), frozenset([10**6])).usable


def test_a_network_that_has_none_of_the_allowed_tokens_is_left_free() -> None:
    tokenizer = make_tokenizer()
    held = Grammars(tokenizer, len(tokenizer), frozenset([0])).for_answer(
        request(user("hello"), format=FORM), "", taught=False
    )
    assert held is not None

    assert held.narrow(torch.zeros(1)).isfinite().all()


async def test_it_is_told_that_forms_are_kept(engine: Engine) -> None:
    assert engine.check(request(user("hello"))).schemas is True
