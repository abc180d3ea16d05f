"""Whatever a model writes, and however it is cut: no error, nothing lost, the same result."""

import json
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mellea_responses.engine.families import choose
from support.splitting import joined, splitter_for, tokenizer_with, typed_ids

DATA = sorted((Path(__file__).parent / "data").glob("*.json"))
FAMILIES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in DATA}
TOKENIZERS = {
    (name, tokens): tokenizer_with(
        family["special"] if tokens else [], family["added"] if tokens else [], family["template"]
    )
    for name, family in FAMILIES.items()
    for tokens in (True, False)
}

BITS = [
    '{"name": "now", "arguments": {}}',
    '{"name": "get_weather", "parameters": {"city": "A\\"}"}}',
    '{"name": "get_weather", "arguments": {"city": "A </tool_call> b"}}',
    '{"name": "',
    '"arguments": ',
    "now",
    "get_weather\n",
    '{"a": [1, "x"]}',
    "call:now{a:1}",
    "[now(a=1)]",
    "function",
    "```json\n",
    "analysis",
    "commentary to=functions.now",
    "final",
    "```",
    "<function=now>",
    "<function=get_weather>",
    "<parameter=city>\n",
    "\n</parameter>",
    "</parameter>",
    "</function>",
    "{",
    "}",
    "[",
    "]",
    '"',
    "\\",
    ",",
    ":",
    ";",
    "<",
    ">",
    " ",
    "\n",
    "word",
    "👩‍👩‍👧",
    "null",
    "to=",
]


def answers(name):
    family = FAMILIES[name]
    markers = [*choose(family["template"], frozenset()).literals, *family["special"], *family["added"]]
    return st.lists(st.sampled_from([*markers, *markers, *BITS]), max_size=14)


def fed(name, parts, sizes, *, tokens):
    """The answer in pieces of the given sizes, over and over; a marker token is never cut."""
    tokenizer = TOKENIZERS[name, tokens]
    vocabulary = tokenizer.get_added_vocab()
    family = FAMILIES[name]
    splitter = splitter_for(tokenizer, family["prompt"], family["tools"])
    steps, queue = [], list(sizes)
    run = ""
    for part in [*parts, ""]:
        if part and part not in vocabulary:
            run += part
            continue
        while run:
            queue.append(size := queue.pop(0))
            steps += splitter.feed(typed_ids(tokenizer, run[:size]), run[:size])
            run = run[size:]
        steps += splitter.feed([vocabulary[part]], part) if part else []
    return joined([*steps, *splitter.finish("stop")])


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@pytest.mark.parametrize("tokens", [True, False], ids=["marker tokens", "marker text"])
@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), sizes=SIZES)
def test_garbage_never_raises_and_comes_apart_the_same_however_it_is_cut(name, tokens, data, sizes):
    parts = data.draw(answers(name))

    assert fed(name, parts, sizes, tokens=tokens) == fed(name, parts, [10_000], tokens=tokens)


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=40, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])), sizes=SIZES)
def test_text_without_markup_comes_out_as_it_went_in(name, text, sizes):
    assume(not any(literal in text for literal in choose(FAMILIES[name]["template"], frozenset()).literals))
    parts = ["<|channel|>final<|message|>"] if name == "gpt-oss" else []
    steps = fed(name, [*parts, "." + text], sizes, tokens=False)

    assert [step[:2] for step in steps] == [["text", "." + text]]


@pytest.mark.parametrize("name", ["qwen3", "glm-4.5", "deepseek", "granite-3", "mistral", "lfm-2"])
@settings(max_examples=60, deadline=None)
@given(data=st.data(), sizes=SIZES)
def test_no_word_is_lost_or_told_twice_between_think_tags(name, data, sizes):
    tags = [
        literal for literal in choose(FAMILIES[name]["template"], frozenset()).literals if "think" in literal.lower()
    ]
    parts = data.draw(st.lists(st.sampled_from([*tags, " ", "\n", "word", "<", "th", "👋"]), max_size=12))
    steps = fed(name, parts, sizes, tokens=True)
    words = "".join(part for part in parts if part not in tags)
    said = "".join(text for _, text, *_ in steps)
    for tag in tags:
        said = said.replace(tag, "")

    assert "".join(said.split()) == "".join(words.split())
