"""A model whose template has no place for tools is told in words how to call, and read as it was told."""

import functools
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from engine.tiny import Scripted, ask, make_tokenizer, request, user

from mellea_responses.engine.engine import Engine
from mellea_responses.engine.families import FAMILIES, with_taught_calls
from mellea_responses.engine.parse import make_splitter
from mellea_responses.turn import Call, CallArgs, CallEnd, Options, Text
from support.splitting import cut, joined, tokenizer_with

DATA = sorted((Path(__file__).parent / "data").glob("*.json"))
RECORDED = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in DATA}
ARGUMENTS = '{"code": "if a:\\n    b = \\"}</\\"", "n":  1}'
TAUGHT = f'Let me see.\n<tool_call>\n{{"name": "now", "arguments": {ARGUMENTS}}}\n</tool_call>'
TWICE = f'{TAUGHT}\n<tool_call>{{"name": "now", "arguments": {{}}}}</tool_call>'
CASES = [
    pytest.param(family, case, id=f"{name}: {case['name']}")
    for name, family in RECORDED.items()
    for case in family["cases"]
]
CUTS = ["tokens", 1, 3, 17, "whole"]
TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}

tokenizer_of = functools.cache(tokenizer_with)


def play(family: dict[str, Any], raw: str, size: int | str, prompt: str, reason: str = "stop") -> list[list[Any]]:
    tokenizer = tokenizer_of(tuple(family["special"]), tuple(family["added"]), family["template"])
    numbers = itertools.count(1)
    splitter = make_splitter(tokenizer, prompt, family["tools"], taught=True, mint=lambda: f"id{next(numbers)}")
    steps = [step for ids, text in cut(tokenizer, raw, size) for step in splitter.feed(ids, text)]
    return joined([*steps, *splitter.finish(reason)])  # type: ignore[arg-type]  # a reason of the data


def spoken(name: str, raw: str) -> str:
    return f"<|channel|>final<|message|>{raw}" if name == "gpt-oss" else raw


def without_phase(steps: list[list[Any]]) -> list[list[Any]]:
    return [step[:2] if step[0] == "text" else step for step in steps]


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("name", RECORDED)
def test_a_taught_call_is_a_call_in_every_family(name: str, size: int | str) -> None:
    family = RECORDED[name]

    steps = without_phase(play(family, spoken(name, TWICE), size, family["prompt"]))

    assert steps == [["text", "Let me see."], ["call", "now", ARGUMENTS], ["call", "now", "{}"]]


@pytest.mark.parametrize("name", RECORDED)
def test_a_taught_call_that_is_cut_anywhere_is_an_open_call_or_words(name: str) -> None:
    family = RECORDED[name]
    markers = [*family["special"], *family["added"]]
    for end in range(len(TAUGHT)):
        raw = TAUGHT[:end]
        steps = play(family, spoken(name, raw), 1, family["prompt"], "length")

        assert steps == play(family, spoken(name, raw), "whole", family["prompt"], "length")
        calls = [step for step in steps if "call" in step[0]]
        assert all(ARGUMENTS.startswith(call[2]) for call in calls), (raw, markers)
        # All that may be missing at the end is the closing tag.
        assert all((call[0] == "call") == (call[2] == ARGUMENTS) for call in calls), raw


@pytest.mark.parametrize("size", ["tokens", 3])
@pytest.mark.parametrize(("family", "case"), CASES)
def test_the_family_s_own_markup_still_counts(family: dict[str, Any], case: dict[str, Any], size: int | str) -> None:
    prompt, reason = case.get("prompt", family["prompt"]), case.get("reason", "stop")

    assert play(family, case["raw"], size, prompt, reason) == case["want"]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_can_be_taught(family: Any) -> None:
    opens, closes = with_taught_calls(family).spans["tool_calls"]

    assert "<tool_call>" in opens
    assert "</tool_call>" in closes


def test_a_model_s_own_response_template_is_taught_calls_only_where_it_knows_none() -> None:
    think = {"open": "<t>", "close": "</t>", "content": "text"}
    tokenizer = tokenizer_with([], [], "")
    tokenizer.response_template = {
        "start_anchor": "\x00",
        "fields": {"content": {"content": "text"}, "thinking": think},
    }
    numbers = itertools.count(1)

    for taught, kind in ((True, "call"), (False, "text")):
        splitter = make_splitter(tokenizer, "", [TOOL], taught=taught, mint=lambda: f"id{next(numbers)}")
        steps = joined([*splitter.feed([], f"<t>hm</t>{TAUGHT}"), *splitter.finish("stop")])

        assert steps[0] == ["thought", "hm"]
        assert steps[-1][0] == kind


LLAMA = (
    "{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>{{ m['content'] }}<|im_end|>"
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{% endif %}"
)


@pytest.mark.parametrize("choice", ["auto", "none"])
async def test_the_engine_reads_what_its_prompt_taught(model: Scripted, started: Any, choice: str) -> None:
    tokenizer = make_tokenizer(LLAMA, special=["<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"])
    model = Scripted(model.network, tokenizer, "tiny")
    engine: Engine = started(model)
    model.say(TAUGHT)

    asked = request(user("now?"), tools=(TOOL,), tool_choice=choice, options=Options(max_output_tokens=200))
    steps = await ask(engine, asked)

    kinds = {type(step) for step in steps}
    assert kinds & {Call, CallArgs, CallEnd} == ({Call, CallArgs, CallEnd} if choice == "auto" else set())
    assert Text in kinds
