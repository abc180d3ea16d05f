"""A model that ships its own `response_template` is read by it."""

import pytest

from mellea_responses.engine.shipped import looks_far_ahead
from support.splitting import cut, joined, splitter_for, tokenizer_with

CUTS = ["tokens", 1, 3, 17, "whole"]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        },
    }
]
CONTENT = {"close_pattern": r"\s*<\|im_end\|>", "content": "text"}
REASONING = {"open": "<think>", "close": "</think>", "content": "text"}
JSON_CALLS = {
    "start_anchor": "<|im_start|>assistant\n",
    "defaults": {"role": "assistant"},
    "fields": {
        "thinking": REASONING,
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {**CONTENT, "optional": False},
    },
}
TAGGED_CALLS = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": REASONING,
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>\s*<function=(?P<name>[^>\n]+)>",
            "close_pattern": r"</function>\s*</tool_call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>"},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": CONTENT,
    },
}
NAMED_CALLS = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open_pattern": r"<tool_call>call:(?P<name>\w+)",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": CONTENT,
    },
}
PROMPT = "<|im_start|>user\nHi <think><|im_end|>\n<|im_start|>assistant\n"


def play(template, raw, size, *, prompt=PROMPT, tokens=True, reason="stop", typed=False):
    special = ["<|im_start|>", "<|im_end|>"] if tokens else []
    added = ["<think>", "</think>", "<tool_call>", "</tool_call>"] if tokens else []
    tokenizer = tokenizer_with(special, added)
    tokenizer.response_template = template
    splitter = splitter_for(tokenizer, prompt, TOOLS)
    steps = [step for ids, text in cut(tokenizer, raw, size, typed=typed) for step in splitter.feed(ids, text)]
    return joined([*steps, *splitter.finish(reason)])


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("tokens", [True, False], ids=["marker tokens", "marker text"])
@pytest.mark.parametrize(
    ("template", "raw", "want"),
    [
        pytest.param(JSON_CALLS, "Hi {x} 👋<|im_end|>", [["text", "Hi {x} 👋"]], id="an answer"),
        pytest.param(
            JSON_CALLS,
            '<think>\nHm\n</think>\n\nYes.\n<tool_call>\n{"name": "get_weather",  "arguments": {"city":  "A"}}\n'
            '</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|im_end|>',
            [
                ["thought", "Hm"],
                ["text", "Yes."],
                ["call", "get_weather", '{"city":  "A"}'],
                ["call", "now", "{}"],
            ],
            id="JSON calls, as written",
        ),
        pytest.param(
            JSON_CALLS,
            'A\n<tool_call>\n{"name": "now", "arguments": {oops}}\n</tool_call>\nB'
            "<tool_call>no JSON</tool_call>C<|im_end|>",
            [["text", "A"], ["open call", "now", "{oops}"], ["text", "Bno JSONC"]],
            id="malformed JSON calls",
        ),
        pytest.param(
            JSON_CALLS,
            '<tool_call>{"name": "get_weather", "arguments": {"city": "a </tool_call> \\" <tool_call>"}}</tool_call>B'
            '<tool_call>\n{"name": "now", "arguments": {"city": "A\n</tool_call>\nC<|im_end|>',
            [
                ["call", "get_weather", '{"city": "a </tool_call> \\" <tool_call>"}'],
                ["text", "B"],
                ["open call", "now", '{"city": "A\n'],
                ["text", "C"],
            ],
            id="a closing tag in a string, and in one without an end",
        ),
        pytest.param(
            TAGGED_CALLS,
            "<tool_call>\n<function=get_weather>\n<parameter=city>\n<a>\n <parameter>1</parameter>\n</a>\n"
            "</parameter>\n</function>\n</tool_call><|im_end|>",
            [["call", "get_weather", '{"city": "<a>\\n <parameter>1</parameter>\\n</a>"}']],
            id="a closing parameter in a value",
        ),
        pytest.param(
            TAGGED_CALLS,
            "A\n<tool_call>\n<function=get_weather>\n<parameter=city>\n  5\n</parameter>\n<parameter=days>\n5\n"
            "</parameter>\n</function>\n</tool_call><|im_end|>",
            [["text", "A"], ["call", "get_weather", '{"city": "  5", "days": 5}']],
            id="calls in tags, typed by the schema",
        ),
        pytest.param(
            NAMED_CALLS,
            'A<tool_call>call:get_weather{"city":  "A"}</tool_call>B<tool_call>call:now{oops}</tool_call>',
            [["text", "A"], ["call", "get_weather", '{"city":  "A"}'], ["text", "B"], ["open call", "now", "{oops}"]],
            id="a name before the arguments",
        ),
    ],
)
def test_a_shipped_template_is_followed_however_the_text_is_cut(template, raw, want, size, tokens):
    assert play(template, raw, size, tokens=tokens) == want


@pytest.mark.parametrize("size", CUTS)
def test_a_think_tag_opened_by_the_prompt_counts(size):
    assert play(JSON_CALLS, "Hm\n</think>\n\nYes.<|im_end|>", size, prompt=PROMPT + "<think>\n") == [
        ["thought", "Hm"],
        ["text", "Yes."],
    ]


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("tokens", [True, False], ids=["marker tokens", "marker text"])
def test_reasoning_that_only_the_model_closes_is_reasoning(size, tokens):
    special, added = (["<|im_start|>", "<|im_end|>"], ["<think>", "</think>"]) if tokens else ([], [])
    tokenizer = tokenizer_with(special, added, "<think></think>")
    tokenizer.response_template = JSON_CALLS
    splitter = splitter_for(tokenizer, PROMPT)
    steps = [step for ids, text in cut(tokenizer, "Hm\n</think>\n\nYes.", size) for step in splitter.feed(ids, text)]

    assert joined([*steps, *splitter.finish("stop")]) == [["thought", "Hm"], ["text", "Yes."]]


@pytest.mark.parametrize("size", CUTS)
def test_a_cut_call_stays_incomplete(size):
    raw = '<tool_call>\n{"name": "now", "arguments": {"a'
    tagged = "<tool_call>\n<function=now>\n<parameter=a>\nx"

    assert play(JSON_CALLS, raw, size, reason="length") == [["open call", "now", '{"a']]
    assert play(TAGGED_CALLS, tagged, size, reason="length") == [["open call", "now", '{"a": "x']]


@pytest.mark.parametrize("size", CUTS)
def test_a_marker_that_is_only_typed_is_text(size):
    typed = 'Write <think> and <tool_call>{"name": "now"}</tool_call>.'

    assert play(JSON_CALLS, typed, size, typed=True) == [["text", typed]]


def test_a_template_that_cannot_be_loaded_leaves_the_family(caplog):
    assert play({"fields": {}}, "<think>a</think>b<|im_end|>", 3) == [["thought", "a"], ["text", "b"]]
    assert "response_template" in caplog.text


def test_a_template_that_looks_ahead_over_everything_still_to_come_is_not_used(caplog):
    slow = {**JSON_CALLS, "fields": {**JSON_CALLS["fields"], "content": {"close_pattern": r"(?=.*<\|im_end\|>)"}}}

    assert play(slow, "<think>a</think>b<|im_end|>", 3) == [["thought", "a"], ["text", "b"]]
    assert "looks ahead" in caplog.text


@pytest.mark.parametrize(
    ("pattern", "far"),
    [
        (r"(?=\{)", False),
        (r"(?=\s*\{)", False),
        (r"(?P<name>[^>\n]+)>", False),
        (r"(?=<\|im_end\|>)[^<]*", False),
        (r"(?=.*<x>)", True),
        (r"(?!(?:[^<]*)</think>)", True),
        (r"(?=[\s\S]*</think>)", True),
        (r"a(?=\)[^)]+x)", True),
    ],
)
def test_only_a_look_ahead_without_a_bound_is_slow(pattern, far):
    assert looks_far_ahead({"fields": {"content": {"close_pattern": pattern}}}) is far
