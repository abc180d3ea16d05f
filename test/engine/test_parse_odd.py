"""Arguments that look like anything but arguments leave every family's markup as they were written."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.splitting import cut, joined, splitter_for, tokenizer_with

DATA = sorted((Path(__file__).parent / "data").glob("*.json"))
RECORDED = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in DATA}
CUTS = ["tokens", 1, "whole"]

ODD: dict[str, dict[str, Any]] = {
    "braces, quotes and blanks": {"q": 'a {b} }} " ] [ \\ é 🌊👩‍👩‍👧 \n\t  end  '},
    "deep": {"n": {"x": [1, {"y": "}"}, []], "z": {}}, "e": ""},
    "nothing": {},
    "a fence": {"q": "```json\n{}\n```"},
    "other families' markup": {"q": "<function=x> <parameter=y> [TOOL] call:now{a:1} function"},
    "the family's own tags": {"q": "a </tool_call> b <tool_call></tool_call> c <｜tool▁calls▁end｜> d </parameter> e"},
    "separators": {"i": 12, "q": "\u2028\ud7ff"},
    "backslashes": {"q": '\\n is no line break \\\\" '},
}
KINDS = {"q": "string", "e": "string", "i": "integer", "n": "object"}
PARAMETERS = {"type": "object", "properties": {name: {"type": kind} for name, kind in KINDS.items()}}
TOOL = {"type": "function", "function": {"name": "now", "parameters": PARAMETERS}}

SPELLINGS: dict[str, Callable[[Any], str]] = {
    "as text": functools.partial(json.dumps, ensure_ascii=False),
    "escaped": json.dumps,
    "indented": functools.partial(json.dumps, ensure_ascii=False, indent=2),
}
BEGIN, SEP, END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
CALLS, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
HERMES = '<tool_call>\n{{"name": "now", "arguments": {}}}\n</tool_call>'
WRITTEN = {
    "Qwen 2.5": ("qwen2.5", HERMES),
    "Qwen 3": ("qwen3", HERMES),
    "Granite 4": ("granite-4", HERMES),
    "Granite 3": ("granite-3", '<|tool_call|>[{{"name": "now", "arguments": {}}}]'),
    "Gemma, taught": ("gemma-3", HERMES),
    "Llama": ("llama-3", '{{"name": "now", "parameters": {}}}'),
    "Llama, tagged": ("llama-3", '<|python_tag|>{{"type": "function", "name": "now", "parameters": {}}}'),
    "Mistral": ("mistral", "[TOOL_CALLS]now[ARGS]{}"),
    "Mistral, list": ("mistral", '[TOOL_CALLS][{{"name": "now", "arguments": {}}}]'),
    "gpt-oss": ("gpt-oss", "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>"),
    "gpt-oss, to first": ("gpt-oss", " to=functions.now<|channel|>commentary json<|message|>{}<|call|>"),
    "DeepSeek V3": ("deepseek", f"{CALLS}{BEGIN}function{SEP}now\n```json\n{{}}\n```{END}{CALLS_END}"),
    "DeepSeek V3.1": ("deepseek", f"{CALLS}{BEGIN}now{SEP}{{}}{END}{CALLS_END}"),
    "GLM 4": ("glm-4", "now\n{}"),
}
TAGGED = {
    "qwen3-coder": ("<tool_call>\n<function=now>\n{}</function>\n</tool_call>", "<parameter={}>\n{}\n</parameter>\n"),
    "glm-4.5": ("<tool_call>now\n{}</tool_call>", "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n"),
}

tokenizer_of = functools.cache(tokenizer_with)


def every_way(family: dict[str, Any], raw: str) -> list[list[list[Any]]]:
    """The parts of an answer, for each way to cut it."""
    tokenizer = tokenizer_of(tuple(family["special"]), tuple(family["added"]), family["template"])
    results = []
    for size in CUTS:
        splitter = splitter_for(tokenizer, family["prompt"], [TOOL])
        steps = [step for ids, text in cut(tokenizer, raw, size) for step in splitter.feed(ids, text)]
        results.append(joined([*steps, *splitter.finish("stop")]))
    return results


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("arguments", ODD)
@pytest.mark.parametrize("written", WRITTEN)
def test_arguments_leave_letter_by_letter_as_they_were_written(written: str, arguments: str, spelling: str) -> None:
    name, markup = WRITTEN[written]
    text = SPELLINGS[spelling](ODD[arguments])

    results = every_way(RECORDED[name], markup.format(text))

    assert [result[0][:3] for result in results] == [["call", "now", text]] * len(CUTS)
    assert all(len(result) == 1 for result in results)


@pytest.mark.parametrize("arguments", ODD)
@pytest.mark.parametrize("name", TAGGED)
def test_values_in_tags_mean_what_they_meant(name: str, arguments: str) -> None:
    call, argument = TAGGED[name]
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in ODD[arguments].items()}
    raw = call.format("".join(argument.format(key, value) for key, value in values.items()))

    results = every_way(RECORDED[name], raw)

    assert all(result == results[0] for result in results)
    [[kind, called, text]] = results[0]
    assert (kind, called, json.loads(text)) == ("call", "now", ODD[arguments])


@pytest.mark.parametrize("name", RECORDED)
def test_an_answer_cut_at_any_letter_comes_apart_the_same_and_never_as_another_call(name: str) -> None:
    family = RECORDED[name]
    tokenizer = tokenizer_of(tuple(family["special"]), tuple(family["added"]), family["template"])
    for case in family["cases"][:6]:
        wanted = [step for step in case["want"] if "call" in step[0]]
        for end in range(0, len(case["raw"]), 1 + len(case["raw"]) // 25):
            results = []
            for size in (1, "whole"):
                splitter = splitter_for(tokenizer, case.get("prompt", family["prompt"]), family["tools"])
                pieces = cut(tokenizer, case["raw"][:end], size)
                steps = [step for ids, text in pieces for step in splitter.feed(ids, text)]
                results.append(joined([*steps, *splitter.finish("length")]))

            assert results[0] == results[1], case["raw"][:end]
            calls = [step for step in results[0] if "call" in step[0]]
            assert len(calls) <= len(wanted)
            for call, want in zip(calls, wanted, strict=False):
                assert call[0] == "open call" or call[:3] == want[:3], case["raw"][:end]
