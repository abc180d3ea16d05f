"""What a client may count on while the model is still writing."""

import json
import re
from pathlib import Path

import pytest

from mellea_responses.engine.families import choose
from mellea_responses.engine.parse import make_splitter
from mellea_responses.engine.values import to_json, types_of
from mellea_responses.turn import Call, CallArgs, CallEnd, Text, Thought
from support.splitting import joined, splitter_for, tokenizer_with, typed_ids

TOOL_CALL = ["<tool_call>", "</tool_call>"]
THINK = ["<think>", "</think>"]
SPECIAL = ["<|im_start|>", "<|im_end|>"]
PROMPT = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
HERMES = "<tool_call>"
THINKER = "<tool_call> <think></think>"
CASES = Path(__file__).parents[1] / "cases" / "data"


def text_splitter(template=HERMES, prompt="", tools=()):
    """For a vocabulary without any marker token."""
    return splitter_for(tokenizer_with([], [], template), prompt, tools)


def feed(splitter, *pieces):
    return [splitter.feed([], piece) for piece in pieces]


def test_plain_text_leaves_with_the_token_that_brought_it():
    assert feed(text_splitter(), "Hel", "lo", " you") == [[Text("Hel")], [Text("lo")], [Text(" you")]]


def test_what_may_become_markup_waits_until_it_cannot():
    assert feed(text_splitter(), "a <", "tool", "_box>", "b") == [[Text("a")], [], [Text(" <tool_box>")], [Text("b")]]


def test_arguments_leave_while_they_are_written_and_as_they_are_written():
    splitter = text_splitter()
    steps = feed(
        splitter, '<tool_call>{"name": "f"', ', "arguments": {"a"', ":  [1", ', "}"]', "}", "}", "</tool_call>"
    )

    assert steps == [
        [Call("1", "f", call_id="id1")],
        [CallArgs("1", '{"a"')],
        [CallArgs("1", ":  [1")],
        [CallArgs("1", ', "}"]')],
        [CallArgs("1", "}")],
        [CallEnd("1")],
        [],
    ]


def test_a_string_in_tags_leaves_while_it_is_written():
    splitter = text_splitter()
    pieces = ["<tool_call><function=f>", "<parameter=code>\n", "  if a:\n", "    b", "\n</parameter>", "\n</function>"]
    steps = feed(splitter, *pieces)

    assert [step.text for [step] in steps[1:4]] == ['{"code": "', "  if a:", "\\n    b"]
    # Only what follows tells the end of a value from a tag that it holds.
    assert steps[4:] == [[], [CallArgs("1", '"}'), CallEnd("1")]]


def test_a_marker_in_a_string_waits_for_one_letter():
    splitter = text_splitter()
    steps = feed(
        splitter, '<tool_call>{"name": "f", "arguments": {"a": "', "see </tool_call>", " there", '"}}', "</tool_call>"
    )

    assert [[step.text for step in some if isinstance(step, CallArgs)] for some in steps] == [
        ['{"a": "'],
        ["see "],
        ["</tool_call> there"],
        ['"}'],
        [],
    ]


def test_call_ids_are_minted_once_and_are_unguessable():
    splitter = make_splitter(tokenizer_with([], [], HERMES), "", [])
    steps = splitter.feed([], '<tool_call>{"name": "f"}</tool_call><tool_call>{"name": "f"}</tool_call>')
    ids = [step.call_id for step in steps if isinstance(step, Call)]

    assert len(set(ids)) == 2
    assert all(re.fullmatch("call_[0-9a-f]{24}", call_id) for call_id in ids)


def test_reasoning_that_only_the_model_closes_waits_for_the_tag():
    splitter = text_splitter(THINKER)

    assert feed(splitter, "weighing op", "tions</thi", "nk>", "Take the bus.") == [
        [],
        [],
        [Thought("weighing options")],
        [Text("Take the bus.")],
    ]


@pytest.mark.parametrize("prompt", [PROMPT + "<think>\n\n</think>\n\n", PROMPT + "<think>\n"])
def test_nothing_waits_where_the_prompt_has_decided_about_thinking(prompt):
    splitter = splitter_for(tokenizer_with(SPECIAL, [*TOOL_CALL, *THINK], THINKER), prompt)

    assert [type(step) for step in splitter.feed([1], "So")] == [Thought if prompt.endswith("<think>\n") else Text]


def test_a_model_that_does_not_think_shows_a_closing_tag_nobody_opened_to_nobody():
    splitter = text_splitter(HERMES)

    assert joined([*splitter.feed([], "a</think>b"), *splitter.finish("stop")]) == [["text", "ab"]]


@pytest.mark.parametrize("name", ["14-call-markup-never-in-text", "34-only-a-closing-think-tag"])
def test_the_reported_cases_come_apart(name):
    case = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    splitter = text_splitter(THINKER)
    steps = [step for piece in case["program"]["raw_chunks"] for step in splitter.feed([], piece)]

    assert (
        joined([*steps, *splitter.finish("stop")])
        == {
            "14-call-markup-never-in-text": [["call", "tide_height", '{"harbour":"Ross"}']],
            "34-only-a-closing-think-tag": [["thought", "weighing options"], ["text", "Take the bus."]],
        }[name]
    )


def test_a_typed_marker_and_the_real_one_are_told_apart_in_one_feed():
    tokenizer = tokenizer_with(SPECIAL, TOOL_CALL, HERMES)
    opened, closed = tokenizer.convert_tokens_to_ids(TOOL_CALL)
    splitter = splitter_for(tokenizer, PROMPT)
    typed, call = "Say <tool_call> so: ", '{"name": "f", "arguments": {}}'
    ids = [*typed_ids(tokenizer, typed), opened, *typed_ids(tokenizer, call), closed]
    steps = splitter.feed(ids, f"{typed}<tool_call>{call}</tool_call>")

    assert joined([*steps, *splitter.finish("stop")]) == [["text", "Say <tool_call> so:"], ["call", "f", "{}"]]


def test_a_marker_token_counts_when_its_name_was_left_out_of_the_text():
    tokenizer = tokenizer_with([*SPECIAL, *TOOL_CALL], [], HERMES)
    opened, closed = tokenizer.convert_tokens_to_ids(TOOL_CALL)
    splitter = splitter_for(tokenizer, PROMPT)
    steps = [*splitter.feed([opened], ""), *splitter.feed([1], '{"name": "f"}'), *splitter.feed([closed], "")]

    assert joined(steps) == [["call", "f", "{}"]]


def test_the_vocabulary_tells_the_family_when_the_template_is_silent():
    assert choose("", frozenset({"[TOOL_CALLS]"})).name == "mistral"
    assert choose("<tool_call>", frozenset({"<|python_tag|>"})).name == "hermes"
    assert choose("", frozenset()).name == "hermes"


def test_markup_in_the_history_does_not_open_anything():
    tokenizer = tokenizer_with(SPECIAL, [*TOOL_CALL, *THINK], THINKER)
    splitter = splitter_for(tokenizer, f"<|im_start|>user\n<think> <tool_call><|im_end|>\n{PROMPT}")

    assert joined([*splitter.feed([1], "Yes."), *splitter.finish("stop")]) == [["text", "Yes."]]


@pytest.mark.parametrize(
    ("raw", "schema", "value"),
    [
        ("5", {"type": "string"}, '"5"'),
        ("5", {}, '"5"'),
        ("5", {"type": "integer"}, "5"),
        ("5.0", {"type": "integer"}, "5"),
        ("5.5", {"type": "integer"}, '"5.5"'),
        ("5", {"type": "number"}, "5"),
        ("NaN", {"type": "number"}, '"NaN"'),
        (" True\n", {"type": "boolean"}, "true"),
        ("None", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "null"),
        ('"quoted"', {"type": "string"}, '"\\"quoted\\""'),
        ('[1,  "a"]', {"type": ["array", "null"]}, '[1,  "a"]'),
        ('{"a":  1}', {"$ref": "#/$defs/A"}, '{"a":  1}'),
        ("[1,", {"type": "array"}, '"[1,"'),
        ("2", {"enum": [1, 2]}, "2"),
        ("9" * 5000, {"type": "integer"}, '"' + "9" * 5000 + '"'),
    ],
)
def test_values_in_tags_take_the_type_their_schema_gives_them(raw, schema, value):
    root = {"$defs": {"A": {"type": "object"}}}

    assert to_json(raw, types_of(schema, root)) == value


def test_a_schema_that_refers_to_itself_does_not_hang():
    assert types_of({"$ref": "#/a"}, {"a": {"$ref": "#/a"}}) == set()
