"""What the grammar of an answer lets a model write: what each family really writes, and nothing else."""

import functools
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonschema_rs import validator_for
from transformers import PreTrainedTokenizerFast

from mellea_responses.engine.constrain import Grammar, Grammars
from mellea_responses.engine.request import GenerateRequest
from mellea_responses.turn import Format
from support.splitting import joined, splitter_for, tokenizer_with

DATA = sorted((Path(__file__).parent / "data").glob("*.json"))
FAMILIES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in DATA}
HELD = [
    "deepseek",
    "gemma-3",
    "glm-4.5",
    "gpt-oss",
    "granite-3",
    "granite-4",
    "mistral",
    "qwen2.5",
    "qwen3",
    "qwen3-coder",
]
FREE = ["function-gemma", "gemma-4", "glm-4", "lfm-2"]
FORCED = [*HELD, "llama-3"]
"""A family whose calls begin as text does can be held to a call, but not while it may also answer."""

THINK_TAGS = ["<think>", "</think>"]
"""Always tokens here: where they are text, chance would never write the closing one."""

WELL = {
    "a plain answer", "thinking and an answer", "thinking opened by the prompt", "thinking closed by the prompt",
    "empty thinking", "thinking cut", "only a closing tag", "one call", "two calls", "one call, V3.1",
    "two calls, V3.1", "thinking and a call", "code in a call", "unicode in a call", "text before a call",
    "text between and after calls", "numbers and escapes as written", "a call cut in its arguments",
    "a call cut in its name", "a call cut in a value", "a call cut between values", "without line breaks",
    "line breaks in a value", "one call, recipient after the channel", "one call, recipient before the channel",
    "a recipient at once", "the end token not fed", "a preamble", "an answer opened by the prompt",
    "no space before the kind of arguments",
}  # fmt: skip
"""Recorded answers that are written as they should be."""

ILL = {
    "malformed JSON in a call", "no JSON in a call", "arguments before the name", "arguments as a string",
    "no arguments at all", "a call without its closing tag", "one brace too many", "JSON after all", "single quotes",
    "one brace too few", "doubled braces", "no closing tag between calls", "the opening tag twice",
}  # fmt: skip
"""Ways of writing a call that are read, and that a model is kept from."""

FORM = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["a", "b"]},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
        "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/leaf"}]},
    },
    "required": ["kind", "sizes", "next"],
    "additionalProperties": False,
    "$defs": {"leaf": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}},
}


def tokenizer_of(family: dict[str, Any]) -> PreTrainedTokenizerFast:
    tags = THINK_TAGS if "<think>" in family["template"] else []
    return made(tuple(family["special"]), (*family["added"], *tags), family["template"])


made = functools.cache(tokenizer_with)
grammars_of = functools.cache(lambda tokenizer, ends: Grammars(tokenizer, len(tokenizer), ends))


def ends_of(family: dict[str, Any], tokenizer: PreTrainedTokenizerFast) -> frozenset[int]:
    """The tokens on which the recorded answers end."""
    special = {token: tokenizer.convert_tokens_to_ids(token) for token in family["special"]}
    whole = [case["raw"] for case in family["cases"] if case.get("reason", "stop") == "stop"]
    over = (max((token for token in special if raw.endswith(token)), key=len, default=None) for raw in whole)
    return frozenset(special[token] for token in over if token) or frozenset([0])


def grammar(family: dict[str, Any], case: dict[str, Any] | None = None, **asked: Any) -> Grammar | None:
    tokenizer = tokenizer_of(family)
    request = GenerateRequest(messages=({"role": "user", "content": "x"},), **asked)
    prompt = (case or {}).get("prompt", family["prompt"])
    taught = family["template"] == FAMILIES["gemma-3"]["template"]  # it has no place for tools
    return grammars_of(tokenizer, ends_of(family, tokenizer)).for_answer(request, prompt, taught=taught)


def takes(held: Grammar, tokens: list[int], size: int) -> bool:
    """Whether the grammar allows each of these tokens in its place."""
    for token in tokens:
        if token not in allowed(held, size):
            return False
        held.take(token)
    return True


def allowed(held: Grammar, size: int) -> list[int]:
    return torch.isfinite(held.narrow(torch.zeros(size))).nonzero().flatten().tolist()


CASES = [
    pytest.param(FAMILIES[name], case, id=f"{name}: {case['name']}")
    for name in HELD
    for case in FAMILIES[name]["cases"]
]
WRITTEN = [
    param
    for param in CASES
    if param.values[1]["name"] in WELL and param.id != "gpt-oss: two calls"  # its runtime stops after the first
]


@pytest.mark.parametrize(("family", "case"), WRITTEN)
def test_what_a_family_writes_may_be_written(family: dict[str, Any], case: dict[str, Any]) -> None:
    held = grammar(family, case, tools=tuple(family["tools"]))
    assert held is not None
    tokenizer = tokenizer_of(family)

    assert takes(held, tokenizer.encode(case["raw"], add_special_tokens=False), len(tokenizer))


@pytest.mark.parametrize(("family", "case"), [param for param in CASES if param.values[1]["name"] in ILL])
def test_a_call_that_is_written_wrongly_may_not(family: dict[str, Any], case: dict[str, Any]) -> None:
    held = grammar(family, case, tools=tuple(family["tools"]))
    assert held is not None
    tokenizer = tokenizer_of(family)

    assert not takes(held, tokenizer.encode(case["raw"], add_special_tokens=False), len(tokenizer))


@pytest.mark.parametrize("name", FREE)
def test_a_family_whose_calls_are_not_known_for_certain_is_left_to_the_guard(name: str) -> None:
    family = FAMILIES[name]

    assert grammar(family, tools=tuple(family["tools"])) is None
    assert grammar(family, tools=tuple(family["tools"]), tool_choice="required") is None


def test_every_family_is_in_one_of_the_lists() -> None:
    assert sorted([*FORCED, *FREE]) == sorted(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_answer_of_which_nothing_is_asked_is_free(name: str) -> None:
    assert grammar(FAMILIES[name]) is None
    assert grammar(FAMILIES[name], tools=tuple(FAMILIES[name]["tools"]), tool_choice="none") is None


def test_a_template_that_shows_no_known_calls_leaves_them_free() -> None:
    family = {**FAMILIES["qwen2.5"], "template": "[CALLS]"}

    assert grammar(family, tools=tuple(family["tools"])) is None
    assert grammar(family, format=Format("json_object")) is not None


@pytest.mark.parametrize(("field", "held"), [("reasoning_content", False), ("tool_calls", True)])
def test_a_model_with_a_template_for_its_answers_is_held_where_it_says_enough(field: str, held: bool) -> None:
    family = FAMILIES["qwen2.5"]
    tokenizer = tokenizer_with(family["special"], family["added"], family["template"])
    spans = {field: {"open": "<x>", "close": "</x>", "content": "text"}, "content": {"content": "text"}}
    tokenizer.response_template = {"defaults": {}, "start_anchor": "\x00", "fields": spans}
    grammars = Grammars(tokenizer, len(tokenizer), ends_of(family, tokenizer))

    formed = GenerateRequest(messages=(), format=Format("json_object"))
    tooled = GenerateRequest(messages=(), tools=tuple(family["tools"]))
    assert (grammars.for_answer(formed, "", taught=False) is not None) is held
    assert grammars.for_answer(tooled, "", taught=False) is None


@pytest.mark.parametrize("name", FAMILIES)
def test_a_raw_prompt_is_continued_with_a_value_of_the_form(name: str) -> None:
    family = FAMILIES[name]
    tokenizer = tokenizer_of(family)
    held = grammar(family, {"prompt": "A cat as JSON: "}, raw="A cat as JSON: ", format=Format("json_object"))
    assert held is not None

    assert tokenizer.encode("{", add_special_tokens=False)[0] in allowed(held, len(tokenizer))


# ---------------------------------------------------------------- whatever a model would write


def wander(held: Grammar, tokenizer: PreTrainedTokenizerFast, ends: frozenset[int], seed: int) -> list[int] | None:
    """What a model without any sense writes, as far as it may; None when it finds no end.

    It likes what closes things: a random letter in a string is followed by another one nearly always.
    """
    chance, said, script = random.Random(seed), list[int](), list[int]()
    closing = {*tokenizer.encode('"{}]<>\n', add_special_tokens=False), *tokenizer.added_tokens_decoder}
    for _ in range(2000):
        choices = allowed(held, len(tokenizer))
        if not script and len(choices) > 100 and chance.random() < 0.2:
            script = tokenizer.encode("</parameter>", add_special_tokens=False)  # in free text nothing else leads on
        over = [token for token in choices if token in ends]
        liked = [token for token in choices if token in closing]
        token = chance.choice(over or liked if (over or liked) and chance.random() < 0.8 else choices)
        if script and (wanted := script.pop(0)) in choices:
            token = wanted
        held.take(token)
        if token in ends:
            return said
        said.append(token)
    return None


def read(family: dict[str, Any], tokenizer: PreTrainedTokenizerFast, said: list[int]) -> list[list[Any]]:
    splitter = splitter_for(tokenizer, family["prompt"], family["tools"])
    steps = [step for token in said for step in splitter.feed([token], tokenizer.decode([token]))]
    return joined([*steps, *splitter.finish("stop")])


def spoken(family: dict[str, Any], tokenizer: PreTrainedTokenizerFast, said: list[int]) -> list[list[Any]]:
    """Without thoughts, and without what a family may say before its answer."""
    return [part for part in read(family, tokenizer, said) if part[0] != "thought" and part[-1] != "commentary"]


SEEDS = range(4)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", FORCED)
def test_an_answer_that_must_call_is_a_call_of_a_declared_tool(name: str, seed: int) -> None:
    family = FAMILIES[name]
    tokenizer, tools = tokenizer_of(family), {tool["function"]["name"]: tool["function"] for tool in family["tools"]}
    held = grammar(family, tools=tuple(family["tools"]), tool_choice="required")
    assert held is not None

    said = wander(held, tokenizer, ends_of(family, tokenizer), seed)

    assert said is not None
    calls = spoken(family, tokenizer, said)
    assert calls
    for kind, called, arguments, *_ in calls:
        assert kind == "call"
        assert called in tools
        if name not in ("glm-4.5", "qwen3-coder"):  # their markup has no types to be held to
            assert validator_for(tools[called].get("parameters") or {}).is_valid(json.loads(arguments))


@pytest.mark.parametrize("choice", [
    {"type": "function", "name": "now"},
    {"type": "function", "function": {"name": "now"}},
    {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "now"}]},
    {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"function": {"name": "now"}}]}},
])  # fmt: skip
@pytest.mark.parametrize("name", FORCED)
def test_only_the_chosen_tool_is_called_and_once_if_so_asked(name: str, choice: dict[str, Any]) -> None:
    family = FAMILIES[name]
    tokenizer = tokenizer_of(family)
    held = grammar(family, tools=tuple(family["tools"]), tool_choice=choice, parallel_tool_calls=False)
    assert held is not None

    said = wander(held, tokenizer, ends_of(family, tokenizer), 1)

    assert said is not None
    assert [part[:2] for part in spoken(family, tokenizer, said)] == [["call", "now"]]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", FAMILIES)
def test_an_answer_in_a_form_is_one_value_that_fits(name: str, seed: int) -> None:
    family = FAMILIES[name]
    tokenizer = tokenizer_of(family)
    held = grammar(family, format=Format("json_schema", "f", FORM))
    assert held is not None

    said = wander(held, tokenizer, ends_of(family, tokenizer), seed)

    assert said is not None
    [text] = [part[1] for part in spoken(family, tokenizer, said)]
    assert validator_for(FORM).is_valid(json.loads(text))


@pytest.mark.parametrize("name", HELD)
def test_with_tools_a_form_leaves_room_for_a_call(name: str) -> None:
    family = FAMILIES[name]
    tokenizer = tokenizer_of(family)
    kinds, seed = set[str](), 0
    while len(kinds) < 2 and (seed := seed + 1) < 20:
        held = grammar(family, tools=tuple(family["tools"]), format=Format("json_object"))
        assert held is not None
        if (said := wander(held, tokenizer, ends_of(family, tokenizer), seed)) is not None:
            kinds |= {part[0] for part in read(family, tokenizer, said)} - {"thought"}

    assert kinds == {"text", "call"}


# ---------------------------------------------------------------- reasoning


def first_of(name: str, prompt: str, **asked: Any) -> set[str]:
    family = {**FAMILIES[name], "prompt": prompt}
    tokenizer = tokenizer_of(family)
    held = grammar(family, **asked)
    assert held is not None
    return {tokenizer.decode([token]) for token in allowed(held, len(tokenizer))}


FORMED = {"format": Format("json_object")}


def test_a_model_that_reasons_may_reason_before_it_keeps_to_a_form() -> None:
    assert {"{", "<think>"} <= first_of("qwen3", "<|im_start|>assistant\n", **FORMED)
    assert "<think>" not in first_of("qwen2.5", "<|im_start|>assistant\n", **FORMED)


def test_reasoning_that_the_prompt_began_is_free_and_what_it_ended_does_not_begin_again() -> None:
    assert {"H", "{", "</think>"} <= first_of("qwen3", "<|im_start|>assistant\n<think>\n", **FORMED)
    assert first_of("qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n", **FORMED) == {"{"}


def test_a_message_that_the_prompt_opened_is_held_at_once() -> None:
    assert first_of("gpt-oss", "<|start|>assistant<|channel|>final<|message|>", **FORMED) == {"{"}


# ---------------------------------------------------------------- schemas


def held_to(schema: dict[str, Any]) -> Grammar | None:
    return grammar(FAMILIES["qwen2.5"], format=Format("json_schema", "f", schema))


def may_be(schema: dict[str, Any], text: str) -> bool:
    family = FAMILIES["qwen2.5"]
    tokenizer = tokenizer_of(family)
    held = held_to(schema)
    assert held is not None
    [end] = ends_of(family, tokenizer)
    return takes(held, [*tokenizer.encode(text, add_special_tokens=False), end], len(tokenizer))


def test_after_an_opened_list_an_entry_or_a_blank_may_come() -> None:
    schema = {"type": "array", "items": {"type": "string"}}

    assert may_be(schema, '["a"]')
    assert may_be(schema, '[\n  "a",\n  "b"\n]')
    assert not may_be(schema, '[\n\n"a"]')


@pytest.mark.parametrize("schema", [
    {"type": "array", "uniqueItems": True},
    {"type": "string", "format": "no-such-format"},
    {"not": {"type": "string"}},
    {"if": {"type": "object"}, "then": {"required": ["a"]}},
])  # fmt: skip
def test_what_the_decoder_cannot_keep_of_a_schema_is_left_out(schema: dict[str, Any]) -> None:
    assert held_to(schema) is not None


@pytest.mark.parametrize("schema", [
    {"type": "string", "pattern": "^(?=a)b"},
    {"$ref": "https://example.com/schema"},
    {"type": "integer", "minimum": 2, "maximum": 1},
])  # fmt: skip
def test_a_schema_that_the_decoder_cannot_keep_at_all_leaves_the_answer_free(schema: dict[str, Any]) -> None:
    assert held_to(schema) is None


def test_a_clients_own_words_to_the_decoder_are_not_heard() -> None:
    assert not may_be({"type": "object", "x-guidance": {"whitespace_pattern": "(x)*"}}, "{xx}")


def test_a_grammar_that_runs_into_a_limit_lets_the_answer_go_on() -> None:
    tokenizer = tokenizer_of(FAMILIES["qwen2.5"])
    held = held_to({"type": "object"})
    assert held is not None

    held.take(tokenizer.encode("x", add_special_tokens=False)[0])  # nothing allows it

    assert allowed(held, len(tokenizer)) == list(range(len(tokenizer)))


def test_tokens_beyond_the_vocabulary_are_never_allowed() -> None:
    tokenizer = tokenizer_of(FAMILIES["qwen2.5"])
    held = held_to({"type": "string"})
    assert held is not None

    assert allowed(held, len(tokenizer) + 300) == tokenizer.encode('"', add_special_tokens=False)


def test_a_vocabulary_without_fast_tokenizer_or_end_is_left_free() -> None:
    tokenizer = tokenizer_of(FAMILIES["qwen2.5"])

    assert not Grammars(tokenizer, len(tokenizer), frozenset()).usable
    assert not Grammars(Slow(), 3, frozenset([0])).usable


class Slow:
    """A tokenizer in Python."""

    chat_template = None
    added_tokens_decoder: dict[int, Any] = {}

    def __len__(self) -> int:
        return 3
