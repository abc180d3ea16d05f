"""Cases from public bug reports about other servers, run against ours; `data/` holds them as they came."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from cases.checks import CHECKS, judge
from cases.model import is_model
from cases.play import DATA, Played, load, play, settings_of, turns_of
from cases.policy import PINNED
from cases.values import expand, fill

from support import oracle
from support.raw import Answer
from support.recogniser import rebuild, recognise_frames
from support.stand_in import Json, Shape, StandIn, shapes

CASES = [load(path) for path in sorted(DATA.glob("*.json"))]


def _played() -> Iterator[Any]:
    for case in CASES:
        script = expand(case.get("program", {}))
        # A model has no kinds of `serve()`, and thousands of requests are enough with one.
        single = is_model(script) or "repeat" in json.dumps(case["request"])
        for shape in shapes(script)[:1] if single else shapes(script):
            yield pytest.param(case, shape, id=f"{case['id']}, {shape}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("case", "shape"), list(_played()))
async def test_a_case_holds(case: Json, shape: Shape, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async with play(case, shape, caplog.records) as played:
        failures = [*_status_failures(played), *_shape_failures(played)]
        for sentence in case["expect"]["checks"]:
            failures += await _verdict(sentence, played)

    if failures:
        raise ExceptionGroup(case["id"], failures)


async def _verdict(sentence: str, played: Played) -> list[Exception]:
    try:
        await judge(sentence, played)
    except Exception as exc:
        exc.add_note(f"the sentence that does not hold: {sentence}")
        return [exc]
    return []


# ---------------------------------------------------------------- what every answer must be


def _status_failures(played: Played) -> Iterator[Exception]:
    for turn, (outcome, allowed) in enumerate(zip(played.outcomes, _statuses(played.case), strict=True)):
        pinned = PINNED.get((played.case["id"], turn))
        wanted = allowed if pinned is None else [pinned]
        for answer in outcome if isinstance(outcome, list) else [outcome]:
            if wanted and answer.status not in wanted:
                yield AssertionError(f"turn {turn}: {answer.status}, not {wanted}: {answer.body[:500]!r}")


def _statuses(case: Json) -> list[list[int]]:
    """The allowed statuses of each turn, none where nothing is to be checked."""
    expected = case["expect"]["status"]
    if "turns" not in case["request"]:
        expected = [expected]
    listed = [[one] if isinstance(one, int) else one or [] for one in expected]
    return [sorted(set(one)) for one in listed]


def _shape_failures(played: Played) -> list[Exception]:
    """Whatever a case is about, each of its answers keeps to the protocol."""
    failures: list[Exception] = []
    for answer in played.answers:
        try:
            judge_answer(answer)
        except Exception as exc:
            exc.add_note("an answer that does not keep to the protocol")
            failures.append(exc)
    return failures


def judge_answer(answer: Answer) -> None:
    if answer.is_stream:
        oracle.check_events(answer.events)
        if answer.clean:
            final = recognise_frames(answer.frames)
            assert rebuild(answer.events) == final
    elif answer.status >= 400:
        oracle.check_error(answer.json)
    elif answer.body and answer.json.get("object") == "response" and "status" in answer.json:
        oracle.check_response(answer.json)


# ---------------------------------------------------------------- the runner itself


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_each_sentence_of_a_case_is_bound_to_an_assertion(case: Json) -> None:
    assert [sentence for sentence in case["expect"]["checks"] if sentence not in CHECKS] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_each_choice_that_a_case_leaves_is_pinned(case: Json) -> None:
    parallel = "parallel" in json.dumps(case["request"])
    open_turns = [turn for turn, allowed in enumerate(_statuses(case)) if len(allowed) > 1 and not parallel]

    assert [turn for turn in open_turns if (case["id"], turn) not in PINNED] == []


def test_each_pin_is_one_of_the_outcomes_its_case_allows() -> None:
    by_id = {case["id"]: case for case in CASES}

    assert [pin for pin, status in PINNED.items() if status not in _statuses(by_id[pin[0]])[pin[1]]] == []


def test_all_cases_are_here() -> None:
    assert len(CASES) == 65
    assert all(case["id"] == path.stem for case, path in zip(CASES, sorted(DATA.glob("*.json")), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_runner_knows_all_that_a_case_asks_for(case: Json) -> None:
    script = expand(case.get("program", {}))
    assert is_model(script) or StandIn(script)
    settings_of(case)

    assert len(turns_of(case)) == len(_statuses(case))


def test_markers_stand_for_large_values() -> None:
    assert expand({"$repeat": ["ab", 2]}) == "abab"
    assert expand({"$list": [{"x": {"$index": "v%d"}}, 2]}) == [{"x": "v0"}, {"x": "v1"}]
    assert expand(["a", {"$list": ["b", 2]}, {"$pause_s": 1}]) == ["a", "b", "b", {"$pause_s": 1}]
    assert expand({"$nest": ['{"input":', "[", "]", "}", 2]}) == '{"input":[[]]}'


def test_names_stand_for_earlier_answers() -> None:
    saved = {"t1": {"id": "resp_1", "output": [{"type": "message"}, {"type": "function_call", "call_id": "c"}]}}

    assert fill("/v1/responses/{{t1.id}}", saved) == "/v1/responses/resp_1"
    assert fill("{{t1.output[1].call_id}}", saved) == fill("{{t1.call.call_id}}", saved) == "c"
    assert fill(["{{*t1.output}}", "x"], saved) == [*saved["t1"]["output"], "x"]  # type: ignore[misc]  # a list
    assert fill("{% x %}{{a}} {{ 7*7 }}", saved) == "{% x %}{{a}} {{ 7*7 }}"
