"""The judges are judged: what is right passes, and every single thing taken away, doubled or changed is noticed."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from mellea_responses.builder import Builder
from mellea_responses.turn import (
    Annotation,
    Beat,
    Call,
    CallArgs,
    CallEnd,
    Cancel,
    Fail,
    ItemDone,
    ItemOpen,
    Refusal,
    Said,
    Stop,
    Text,
    Thought,
    Usage,
)
from mellea_responses.wire.response import Response
from support import oracle, sse
from support.recogniser import IllegalStream, rebuild, recognise, recognise_frames
from support.stand_in import Json

SEARCH = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "q", "queries": ["q"]}}
STORIES: dict[str, list[Said]] = {
    "words": [Text("a"), Text("b"), Stop()],
    "nothing": [Stop()],
    "thought and refusal": [Thought("hm"), Refusal("no"), Stop()],
    "a call beside words": [
        Text("y"),
        Call("k", "f"),
        CallArgs("k", "{"),
        Text("more"),
        CallArgs("k", "}"),
        CallEnd("k"),
        Stop("length"),
    ],
    "two kinds of call": [
        Call("a", "f"),
        CallArgs("a", "{}"),
        CallEnd("a"),
        Call("b", "g", kind="custom"),
        CallArgs("b", "hey"),
        CallEnd("b"),
        Stop(),
    ],
    "a source": [Text("water is wet"), Annotation("https://example.org", "Water", 0, 5), Stop()],
    "a server's own tool": [
        ItemOpen({**SEARCH, "status": "in_progress"}),
        ItemDone({**SEARCH, "status": "completed"}),
        Text("found"),
        Stop(),
    ],
    "a failure in a call": [Text("x"), Call("a", "f"), CallArgs("a", "{"), Fail("invalid_tool_call", "broken")],
    "cancelled": [Text("a"), Cancel()],
    "a long silence": [Text("a"), Beat(), Text("b"), Stop()],
}


def told(steps: list[Said], view: Any = "content") -> list[Json]:
    count = itertools.count()
    base = Response(id="resp_1", created_at=1, status="in_progress", model="m")
    builder = Builder(base, mint=lambda kind: f"{kind}_{next(count)}", clock=lambda: 5, view=view)
    events = [*builder.start(), *(event for step in [Usage(1, 1), *steps] for event in builder.hear(step))]
    plain: list[Json] = msgspec.to_builtins(events)
    return plain


STREAMS = [
    pytest.param(told(steps, view), id=f"{name}, {view}")
    for name, steps in STORIES.items()
    for view in ("content", "summary")
]


@pytest.mark.parametrize("events", STREAMS)
def test_a_right_stream_passes_and_rebuilds_its_response(events: list[Json]) -> None:
    oracle.check_events(events)

    assert rebuild(events) == recognise(events)


@pytest.mark.parametrize("events", STREAMS)
def test_an_event_left_out_doubled_or_early_is_noticed(events: list[Json]) -> None:
    for place, changed in _disorders(events):
        assert not _passes(changed), f"nobody noticed a change at {place}: {events[place]['type']}"


def _passes(events: list[Json]) -> bool:
    try:
        recognise([{**event, "sequence_number": number} for number, event in enumerate(events)])
    except (IllegalStream, KeyError):
        return False
    return True


def _disorders(events: list[Json]) -> Iterator[tuple[int, list[Json]]]:
    for place, event in enumerate(events):
        others = [*events[:place], *events[place + 1 :]]
        beat = event["type"] == "response.in_progress" and place > 1
        if not beat and not _optional(events, event):
            yield place, others
        if event["type"] != "response.in_progress" and not event["type"].endswith(".delta"):
            yield place, [*events[: place + 1], *events[place:]]
        if place and not beat and events[place - 1]["type"] != event["type"] and not _independent(events, place):
            yield place, [*events[: place - 1], event, events[place - 1], *events[place + 1 :]]


def _optional(events: list[Json], event: Json) -> bool:
    """An `error` may be missing, and a call that was cut need not be told whole."""
    cut = events[-1]["type"] == "response.failed" and event["type"] == "response.function_call_arguments.done"
    return cut or event["type"] == "error"


def _independent(events: list[Json], place: int) -> bool:
    """Neighbours that may stand either way: those of different items or of none, a beat, a source."""
    first, second = events[place - 1], events[place]
    different = first.get("output_index") != second.get("output_index")
    beat = place > 2 and "response.in_progress" in (first["type"], second["type"])
    source = second["type"] == "response.output_text.annotation.added"
    return beat or source or (different and place > 2)


@pytest.mark.parametrize("events", STREAMS)
def test_a_word_changed_in_one_place_is_noticed(events: list[Json]) -> None:
    for place, event in enumerate(events):
        for name in ("delta", "text", "refusal", "arguments", "input", "item_id", "output_index", "content_index"):
            if event.get(name) not in (None, ""):
                changed = copy.deepcopy(events)
                changed[place][name] = 99 if isinstance(event[name], int) else event[name] + "?"
                with pytest.raises(IllegalStream):
                    recognise(changed)


@pytest.mark.parametrize("events", STREAMS)
def test_a_key_taken_away_or_added_is_noticed(events: list[Json]) -> None:
    for event in events:
        for key in event.keys() - {"logprobs", "code", "message", "param", "name"}:
            with pytest.raises((oracle.OracleError, KeyError)):
                oracle.check_event({name: value for name, value in event.items() if name != key})
        with pytest.raises(oracle.OracleError):
            oracle.check_event({**event, "surprise": 1})


def test_a_key_of_the_response_taken_away_is_noticed() -> None:
    response = told([Text("a"), Stop()])[-1]["response"]
    for key in response:
        with pytest.raises((oracle.OracleError, KeyError)):
            oracle.check_response({name: value for name, value in response.items() if name != key})


def test_the_type_of_a_value_is_judged_strictly() -> None:
    response = told([Text("a"), Stop()])[-1]["response"]
    for key, wrong in {"created_at": "1", "temperature": "1", "store": 1, "status": None, "model": 5}.items():
        with pytest.raises(oracle.OracleError):
            oracle.check_response({**response, key: wrong})


def test_an_item_that_nobody_publishes_is_refused() -> None:
    with pytest.raises(oracle.OracleError):
        oracle.check_item({"type": "musing", "id": "m_1"})
    with pytest.raises(oracle.OracleError):
        oracle.check_event({"type": "response.musing", "sequence_number": 0})


@pytest.mark.parametrize(
    "error",
    [
        {"message": "m", "type": "server_error", "param": "", "code": None},
        {"message": "m", "type": "server_error", "param": ""},
        {"message": "", "type": "server_error", "param": "", "code": "c"},
        {"message": "m", "type": "strange", "param": "", "code": "c"},
        {"message": "m", "type": "server_error", "param": "", "code": "c", "detail": "d"},
    ],
)
def test_an_error_that_is_not_four_strings_is_refused(error: Json) -> None:
    with pytest.raises(AssertionError):
        oracle.check_error({"error": error})


FRAMES = b"event: a\ndata: {}\n\n: ping\n\ndata: [DONE]\n\n"


def test_frames_keep_comments_and_their_order() -> None:
    event, comment, done = sse.read(FRAMES)

    assert (event.is_event, event.event, event.json) == (True, "a", {})
    assert comment.is_comment
    assert done.is_done


def test_frames_do_not_depend_on_how_the_bytes_were_cut() -> None:
    splitter = sse.Splitter()

    assert [frame for byte in FRAMES for frame in splitter.feed(bytes([byte]))] == sse.read(FRAMES)


def test_what_stands_on_the_wire_must_end_in_done_and_name_its_events() -> None:
    events = told([Text("a"), Stop()])
    frames = [sse.Frame((f"event: {e['type']}", f"data: {msgspec.json.encode(e).decode()}")) for e in events]
    done = sse.Frame(("data: [DONE]",))

    assert recognise_frames([*frames, done]) == events[-1]["response"]
    for wrong in ([*frames], [*frames, done, done], [sse.Frame(("id: 0", *frames[0].lines)), *frames[1:], done]):
        with pytest.raises(IllegalStream):
            recognise_frames(wrong)
