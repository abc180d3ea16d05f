"""Recorded outputs of every family: however the text is cut, the same reasoning, text and calls come out."""

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from mellea_responses.engine.families import choose
from support.splitting import cut, joined, splitter_for, tokenizer_with

DATA = sorted((Path(__file__).parent / "data").glob("*.json"))
FAMILIES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in DATA}
CASES = [
    pytest.param(family, case, id=f"{name}: {case['name']}")
    for name, family in FAMILIES.items()
    for case in family["cases"]
]
CUTS = ["tokens", 1, 3, 17, "whole"]


tokenizer_of = functools.cache(tokenizer_with)


def play(family: dict[str, Any], case: dict[str, Any], size: int | str, *, tokens: bool) -> list[list[Any]]:
    special, added = (family["special"], family["added"]) if tokens else ([], [])
    tokenizer = tokenizer_of(tuple(special), tuple(added), family["template"])
    raw = case["raw"] if tokens else without_specials(family, case["raw"])
    splitter = splitter_for(tokenizer, case.get("prompt", family["prompt"]), family["tools"])
    steps = [step for ids, text in cut(tokenizer, raw, size) for step in splitter.feed(ids, text)]
    return joined([*steps, *splitter.finish(case.get("reason", "stop"))])


def without_specials(family: dict[str, Any], raw: str) -> str:
    """What the end of a turn looks like for a vocabulary that has no token for it: nothing is written."""
    markers = choose(family["template"], frozenset()).literals
    ends = [token for token in family["special"] if raw.endswith(token) and token not in markers]
    return raw.removesuffix(max(ends, key=len)) if ends else raw


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize(("family", "case"), CASES)
def test_a_recorded_output_comes_apart_as_expected_however_it_is_cut(family, case, size):
    assert play(family, case, size, tokens=True) == case["want"]


@pytest.mark.parametrize("size", [1, 3, 17, "whole"])
@pytest.mark.parametrize(("family", "case"), [param for param in CASES if "tokens only" not in param.values[1]])
def test_markers_count_as_text_for_a_vocabulary_that_lacks_them(family, case, size):
    assert play(family, case, size, tokens=False) == case["want"]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_family_is_told_by_its_chat_template(family):
    assert choose(family["template"], frozenset()).name == family["family"]


@pytest.mark.parametrize("size", CUTS)
@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family["added"] or name == "gpt-oss"])
def test_a_marker_that_is_only_typed_is_text(name, size):
    family = FAMILIES[name]
    markers = [token for token in (*family["special"], *family["added"]) if re.search(r"[a-z]{3}", token)]
    tokenizer = tokenizer_with(family["special"], family["added"], family["template"])
    splitter = splitter_for(tokenizer, family["prompt"], family["tools"])
    typed = "".join(f"say {marker} now " for marker in markers)
    steps = []
    for ids, text in cut(tokenizer, typed, size, typed=True):
        steps += splitter.feed(ids, text)
    steps += splitter.finish("stop")

    assert "".join(step.text for step in steps).endswith(typed)
