"""Any script of steps, through guard and builder, is one legal stream that says what was said."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mellea_responses.builder import Builder
from mellea_responses.drafts import View
from mellea_responses.errors import ApiError
from mellea_responses.guard import Guard
from mellea_responses.service import Service
from mellea_responses.settings import Settings
from mellea_responses.turn import (
    Annotation,
    Beat,
    Call,
    CallArgs,
    CallEnd,
    Cancel,
    CurrentRun,
    Facts,
    Fail,
    ItemDone,
    ItemOpen,
    Nothing,
    Refusal,
    Said,
    Step,
    Stop,
    Text,
    Thought,
    Turn,
    Usage,
)
from mellea_responses.wire import items as w
from mellea_responses.wire import tools as t
from mellea_responses.wire.decode import decode_create
from mellea_responses.wire.request import CreateResponse
from mellea_responses.wire.response import Response
from support import oracle
from support.recogniser import rebuild, recognise

Json = dict[str, Any]
VIEWS: tuple[View, ...] = ("content", "summary", "hidden")
STRICT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
TOOLS: list[Json] = [
    {"type": "function", "name": "f", "description": None, "parameters": None, "strict": None},
    {"type": "function", "name": "strict", "description": "counts", "parameters": STRICT, "strict": True},
    {"type": "custom", "name": "free"},
    {"type": "namespace", "name": "ns", "description": "inside", "tools": [{"type": "function", "name": "g"}]},
    {"type": "tool_search", "execution": "client"},
]
DECLARED = (
    t.FunctionTool("f"),
    t.FunctionTool("strict", "counts", STRICT, strict=True),
    t.CustomTool("free"),
    t.NamespaceTool("ns", "inside", [t.FunctionTool("g")]),
    t.ToolSearchTool("client"),
)

# ---------------------------------------------------------------- scripts

words = st.text(max_size=6)
logprobs = st.none() | st.tuples(st.builds(w.Logprob, words, st.floats(-9, 0), st.just([97])))
spoken = st.one_of(
    st.builds(Text, words, logprobs, st.sampled_from([None, "commentary", "final_answer"])),
    st.builds(Text, words),
    st.builds(Thought, words),
    st.builds(Refusal, words),
    st.builds(Annotation, st.just("https://example.org"), words, st.integers(0, 9), st.integers(0, 9)),
    st.builds(Usage, st.integers(0, 99), st.integers(0, 99), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
)
NAMES = ("f", "functions.f", "strict", "free", "g", "ns.g", "ns__g", "tool_search", "nobody")
whole_arguments = st.sampled_from(['{"n": 1}', "{}", "", '{"n": "é"}', "no JSON", '{"q":"\\u00e9"}'])
RECEIPTS: tuple[Json, ...] = (
    {"type": "web_search_call", "action": {"type": "search", "query": "q", "queries": ["q"]}},
    {"type": "file_search_call", "queries": ["q"]},
    {"type": "image_generation_call", "result": None},
    {"type": "mcp_call", "arguments": "{}", "name": "n", "server_label": "s"},
    {"type": "mcp_list_tools", "server_label": "s", "tools": []},
)


@st.composite
def calls(draw: st.DrawFn, key: str) -> list[Said]:
    """One call: whole, cut in pieces, or never ended."""
    opened = Call(key, draw(st.sampled_from(NAMES)), call_id=draw(st.none() | st.just(f"call_{key}")))
    text = draw(whole_arguments)
    cut = draw(st.integers(0, len(text)))
    steps: list[Said] = [opened, CallArgs(key, text[:cut]), CallArgs(key, text[cut:]), CallEnd(key)]
    return steps[: draw(st.sampled_from([4, 4, 4, 3, 2, 1]))]


@st.composite
def receipts(draw: st.DrawFn, own_id: str) -> list[Said]:
    """A tool that the server ran: opened and done, only done, or never done."""
    item = {**draw(st.sampled_from(RECEIPTS)), "id": own_id}
    timed = item["type"] != "mcp_list_tools"
    opened = ItemOpen({**item, **({"status": "in_progress"} if timed else {})})
    done = ItemDone({**item, **({"status": "completed"} if timed else {})})
    return draw(st.sampled_from([[opened, done], [done], [opened]]))


@st.composite
def scripts(draw: st.DrawFn, runs_own: bool = True) -> list[Said]:
    """Everything a program can say, woven together at random, with the run's own words and an end somewhere."""
    tracks: list[list[Said]] = [draw(st.lists(spoken, max_size=8))]
    tracks += [draw(calls(f"k{n}")) for n in range(draw(st.integers(0, 3)))]
    tracks += [draw(receipts(f"own_{n}")) for n in range(draw(st.integers(0, 2)))]
    if runs_own:
        tracks.append([Beat()] * draw(st.integers(0, 2)))
    ends: list[Said] = [Stop(), Stop(), Stop("length"), Stop("content_filter"), Fail("code", "why"), Cancel()]
    end = draw(st.sampled_from(ends))
    order = draw(st.permutations([number for number, track in enumerate(tracks) for _ in track]))
    pieces = [iter(track) for track in tracks]
    woven = [next(pieces[number]) for number in order]
    return [*woven[: draw(st.integers(0, len(woven)) | st.just(len(woven)))], end]


# ---------------------------------------------------------------- telling them


class Told(NamedTuple):
    events: list[Json]
    said: list[Said]
    builder: Builder

    @property
    def kinds(self) -> list[str]:
        return [event["type"].removeprefix("response.") for event in self.events]

    @property
    def final(self) -> Json:
        response: Json = self.events[-1]["response"]
        return response


def a_builder(view: View = "content") -> Builder:
    count = itertools.count()
    base = Response(id="resp_1", created_at=1, status="in_progress", model="m", tools=list(DECLARED))
    return Builder(base, mint=lambda kind: f"{kind}_{next(count)}", clock=lambda: 5, view=view)


def tell(script: Sequence[Said], view: View = "content") -> Told:
    """What leaves when a run hears this script: the program's steps by way of the guard, the run's own directly."""
    guard, builder = Guard(Turn(CreateResponse(), (), tools=DECLARED)), a_builder(view)
    said: list[Said] = [Usage(1, 1)]
    for step in script:
        said += [step] if isinstance(step, Beat | Nothing | Fail | Cancel) else guard.hear(step)
    events = [*builder.start(), *(event for step in said for event in builder.hear(step))]
    return Told(plain(events), said, builder)


def plain(value: Any) -> Any:
    """As it crosses the wire."""
    return msgspec.json.decode(msgspec.json.encode(value))


# ---------------------------------------------------------------- promises


@given(scripts(), st.sampled_from(VIEWS))
def test_any_script_is_one_legal_stream_that_rebuilds_the_final_object(script: list[Said], view: View) -> None:
    told = tell(script, view)

    assert recognise(told.events) == rebuild(told.events) == plain(told.builder.response)


@given(scripts(), st.sampled_from(VIEWS))
def test_every_event_and_object_is_one_that_the_specification_or_the_sdk_knows(script: list[Said], view: View) -> None:
    told = tell(script, view)

    oracle.check_events(told.events)
    oracle.check_response(told.final)
    for item in plain(told.builder.kept):
        oracle.check_item(item)


@settings(max_examples=40)
@given(scripts())
def test_events_are_numbered_from_zero_and_items_are_done_in_their_order(script: list[Said]) -> None:
    told = tell(script)

    done = [event["output_index"] for event in told.events if event["type"] == "response.output_item.done"]
    assert [event["sequence_number"] for event in told.events] == list(range(len(told.events)))
    assert done == list(range(len(told.final["output"])))


@settings(max_examples=40)
@given(scripts())
def test_what_is_kept_differs_from_what_is_shown_only_in_reasoning(script: list[Said]) -> None:
    told = {view: tell(script, view) for view in VIEWS}

    kept = [plain(one.builder.kept) for one in told.values()]
    assert kept[0] == kept[1] == kept[2]
    assert list(map(without_thoughts, kept)) == [without_thoughts(one.final["output"]) for one in told.values()]
    assert kept[0] == told["content"].final["output"]
    assert without_thoughts(kept[0]) == told["hidden"].final["output"]


@settings(max_examples=40)
@given(scripts())
def test_a_thought_reads_the_same_as_content_and_as_a_summary(script: list[Said]) -> None:
    content, summary = tell(script, "content").final["output"], tell(script, "summary").final["output"]

    assert thoughts(content, "content") == thoughts(summary, "summary")
    assert not any(thoughts(content, "summary"))
    assert not any(thoughts(summary, "content"))


def without_thoughts(items: list[Json]) -> list[Json]:
    return [item for item in items if item["type"] != "reasoning"]


def thoughts(items: list[Json], field: str) -> list[str]:
    found = [item.get(field) or [] for item in items if item["type"] == "reasoning"]
    return ["".join(part["text"] for part in parts) for parts in found]


@settings(max_examples=40)
@given(scripts())
def test_the_words_of_the_answer_are_the_words_that_were_said(script: list[Said]) -> None:
    told = tell(script)

    parts = [part for item in told.final["output"] if item["type"] == "message" for part in item["content"]]
    assert "".join(part.get("text", "") for part in parts) == joined(told.said, Text)
    assert "".join(part.get("refusal", "") for part in parts) == joined(told.said, Refusal)
    assert "".join(thoughts(told.final["output"], "content")) == joined(told.said, Thought)


def joined(said: list[Said], kind: type[Text | Thought | Refusal]) -> str:
    return "".join(step.text for step in said if isinstance(step, kind))


@settings(max_examples=40)
@given(scripts())
def test_a_call_carries_the_arguments_it_was_given_wherever_they_came(script: list[Said]) -> None:
    told = tell(script)

    given_ = {step.key: "" for step in told.said if isinstance(step, Call) and step.kind != "tool_search"}
    for step in told.said:
        if isinstance(step, CallArgs) and step.key in given_:
            given_[step.key] += step.text
    calls = [item for item in told.final["output"] if item["type"] in ("function_call", "custom_tool_call")]
    assert [item.get("arguments", item.get("input")) for item in calls] == list(given_.values())


@settings(max_examples=50)
@given(scripts(), st.integers(0, 20))
def test_the_live_snapshot_is_what_a_client_has_rebuilt_so_far(script: list[Said], at: int) -> None:
    events = tell([*[step for step in script if isinstance(step, Step)][:at], Beat()]).events

    assert said_in(events[-1]["response"]["output"]) == said_in(rebuild(events)["output"])


def said_in(items: list[Json]) -> list[Any]:
    """Ids and words; sources, probabilities and status reach a client with the end of an item."""
    parts = [[*(item.get("content") or []), *(item.get("summary") or [])] for item in items]
    words = [[part.get("text", part.get("refusal")) for part in some] for some in parts]
    return [
        (item["id"], said, item.get("arguments"), item.get("input")) for item, said in zip(items, words, strict=True)
    ]


@settings(max_examples=40)
@given(scripts(), st.lists(spoken, min_size=1, max_size=3))
def test_after_the_end_nothing_follows(script: list[Said], more: list[Step]) -> None:
    told = tell(script)

    assert [
        event for step in [*more, Stop(), Fail("c", "m"), Cancel(), Beat()] for event in told.builder.hear(step)
    ] == []
    assert plain(told.builder.response) == told.final


# ---------------------------------------------------------------- through a real service


class Scripted:
    """A program that says a script; the run's own words in it are said to the run."""

    name = "scripted"

    def __init__(self, script: Sequence[Said]) -> None:
        self.script = script
        self.service: Service | None = None

    async def check(self, turn: Turn, owner: str) -> Facts | None:
        return None

    async def run(self, current: CurrentRun) -> AsyncIterator[Sequence[Step]]:
        assert self.service is not None
        run = self.service.runs.get(current.owner, current.response_id)
        assert run is not None
        for step in self.script:
            match step:
                case Beat():
                    run.beat()
                case Fail(code=code, message=message):
                    raise ApiError(message, code=code)
                case Cancel():
                    run.cancel("left")
                    await asyncio.Event().wait()
                case _:
                    yield [step]

    def close(self) -> None:
        """Nothing to let go of."""


class Outcome(NamedTuple):
    live: list[bytes]
    replayed: list[bytes]
    retrieved: bytes
    stored_items: list[Json]
    kept: list[Json]


async def outcome_of(script: Sequence[Said], body: Json) -> Outcome:
    program = Scripted(script)
    service = program.service = Service(program, Settings())
    await service.open()
    try:
        run = await service.create(decode_create(msgspec.json.encode({"input": "hi", "tools": TOOLS, **body})), "me")
        await run.log.wait_closed()
        segment = await service.store.segment("me", run.id)
        assert segment is not None
        return Outcome(
            live=await everything(run.log),
            replayed=await everything(await service.stored.events("me", run.id)),
            retrieved=await service.stored.retrieve("me", run.id),
            stored_items=plain(segment.items),
            kept=plain((*run.turn.input, *run.builder.kept)),
        )
    finally:
        await service.close()


async def everything(log: Any) -> list[bytes]:
    return [event async for batch in log.batches() for event in batch]


@settings(max_examples=40)
@given(scripts(), st.sampled_from([{}, {"reasoning": {"summary": "auto"}}]))
def test_stream_final_object_stored_and_retrieved_are_one_and_a_replay_gives_the_same_bytes(
    script: list[Said], body: Json
) -> None:
    outcome = asyncio.run(outcome_of(script, body))

    events: list[Json] = [msgspec.json.decode(event) for event in outcome.live]
    assert recognise(events) == rebuild(events) == msgspec.json.decode(outcome.retrieved)
    assert outcome.replayed == outcome.live
    assert outcome.stored_items == outcome.kept
    oracle.check_events(events)


# ---------------------------------------------------------------- single stories


def kinds(script: Sequence[Said]) -> list[str]:
    return tell(script).kinds[2:]


def test_words_are_opened_told_piece_by_piece_told_whole_and_closed() -> None:
    assert kinds([Text("a"), Text("b"), Stop()]) == [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


def test_an_answer_without_a_word_is_one_empty_message() -> None:
    told = tell([Nothing(), Stop()])

    assert "output_text.delta" not in told.kinds
    assert [item["content"][0]["text"] for item in told.final["output"]] == [""]


def test_empty_pieces_leave_no_trace() -> None:
    assert kinds([Text(""), Thought(""), Text("a"), Refusal(""), Text(""), Stop()]) == kinds([Text("a"), Stop()])


def test_a_change_of_phase_starts_a_new_message() -> None:
    told = tell([Text("a", phase="commentary"), Text("b", phase="commentary"), Text("c", phase="final_answer"), Stop()])

    said = [(item["phase"], item["content"][0]["text"]) for item in told.final["output"]]
    assert said == [("commentary", "ab"), ("final_answer", "c")]


def test_an_annotation_belongs_to_the_text_said_last_whatever_its_phase() -> None:
    told = tell([Text("a", phase="commentary"), Annotation("u", "t", 0, 1), Stop()])

    [message] = told.final["output"]
    assert [note["url"] for note in message["content"][0]["annotations"]] == ["u"]


def test_an_item_that_ends_early_waits_for_those_before_it() -> None:
    told = tell([Call("k", "f"), Text("later"), CallArgs("k", "{}"), Thought("hm"), CallEnd("k"), Stop()])

    done = [event["item"]["type"] for event in told.events if event["type"] == "response.output_item.done"]
    assert done == ["function_call", "message", "reasoning"]


def test_a_call_in_a_namespace_carries_name_and_namespace() -> None:
    [call] = tell([Call("k", "ns.g"), CallEnd("k"), Stop()]).final["output"]

    assert (call["name"], call["namespace"], call["arguments"]) == ("g", "ns", "{}")


def test_a_call_keeps_the_id_that_its_first_knower_minted() -> None:
    told = tell([Call("a", "f", call_id="call_mine"), CallEnd("a"), Call("b", "f"), CallEnd("b"), Stop()])

    assert [item["call_id"] for item in told.final["output"]] == ["call_mine", "call_2"]


def test_a_search_s_arguments_are_an_object() -> None:
    [call] = tell([Call("k", "tool_search"), CallArgs("k", '{"query":"x"}'), CallEnd("k"), Stop()]).final["output"]

    assert (call["type"], call["arguments"]) == ("tool_search_call", {"query": "x"})


@pytest.mark.parametrize(("reason", "said"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_cut_answer_is_incomplete_and_so_is_what_was_open(reason: Any, said: str) -> None:
    told = tell([Text("a"), Call("k", "f"), CallArgs("k", '{"half'), Stop(reason)])

    assert (told.kinds[-1], told.final["incomplete_details"]) == ("incomplete", {"reason": said})
    assert [item["status"] for item in told.final["output"]] == ["completed", "incomplete"]
    assert told.final["completed_at"] is None


def test_a_failure_closes_what_is_open_then_says_error_and_failed() -> None:
    told = tell([Text("a"), Fail("boom", "It broke.", "model_error")])

    error = told.events[-2]
    assert told.kinds[-3:] == ["output_item.done", "error", "failed"]
    assert error["error"] == {"message": "It broke.", "type": "model_error", "param": "", "code": "boom"}
    assert (error["code"], error["message"], error["param"]) == ("boom", "It broke.", "")
    assert told.final["error"] == {"code": "boom", "message": "It broke."}


def test_a_request_that_is_to_blame_is_named_by_the_code_that_keeps_clients_from_asking_again() -> None:
    told = tell([Text("a"), Fail("invalid_request", "Not this.", "invalid_request_error", "input")])

    assert (told.events[-2]["error"]["code"], told.events[-2]["code"]) == ("invalid_prompt", "invalid_prompt")
    assert told.final["error"] == {"code": "invalid_prompt", "message": "Not this."}


def test_a_cancelled_response_ends_with_that_status_and_its_words() -> None:
    told = tell([Text("half"), Cancel()])

    assert (told.final["status"], told.final["output"][0]["status"]) == ("cancelled", "incomplete")
    assert told.final["output"][0]["content"][0]["text"] == "half"


def test_usage_that_cannot_be_is_brought_within_its_bounds() -> None:
    usage = tell([Usage(3, -2, 5, 4, -1), Stop()]).final["usage"]

    assert usage == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 3,
    }


def test_usage_said_again_holds_and_total_is_the_sum() -> None:
    usage = tell([Usage(1, 2), Text("a"), Usage(10, 5, 4, 3, 2), Stop()]).final["usage"]

    assert usage == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 15,
    }


def test_a_receipt_gets_an_id_of_ours_and_keeps_the_rest() -> None:
    item = {**RECEIPTS[0], "id": "ws_theirs", "status": "completed"}

    [receipt] = tell([ItemDone(item), Stop()]).final["output"]

    assert receipt == {**item, "id": "web_search_call_0"}


def test_two_receipts_of_one_type_are_told_apart_by_the_program_s_ids() -> None:
    def search(own_id: str, query: str) -> Json:
        return {"type": "file_search_call", "id": own_id, "queries": [query], "status": "completed"}

    script = [
        ItemOpen(search("a", "")),
        ItemOpen(search("b", "")),
        ItemDone(search("b", "2")),
        ItemDone(search("a", "1")),
    ]

    assert [item["queries"] for item in tell([*script, Stop()]).final["output"]] == [["1"], ["2"]]


def test_a_receipt_that_was_cut_off_says_so_where_it_has_a_status() -> None:
    script = [ItemOpen({**item, "id": str(n), "status": "in_progress"}) for n, item in enumerate(RECEIPTS[:4])]

    output = tell([*script, ItemOpen(dict(RECEIPTS[4])), Cancel()]).final["output"]

    assert [item.get("status") for item in output] == ["incomplete", "incomplete", "failed", "incomplete", None]


def test_a_queued_response_says_so_second() -> None:
    base = Response(id="resp_1", created_at=1, status="queued", model="m")

    events = Builder(base, mint=str, clock=lambda: 5).start()

    assert [event["type"] for event in plain(events)] == ["response.created", "response.queued"]


def everyone() -> Iterator[Said]:
    yield from (Text("a"), Thought("b"), Refusal("c"), Annotation("u", "t", 0, 1), Call("k", "f"), CallArgs("k", "{}"))
    yield from (CallEnd("k"), ItemOpen(dict(RECEIPTS[0])), ItemDone(dict(RECEIPTS[0])), Usage(1, 2), Beat(), Stop())


def test_steps_come_back_from_their_stored_form_unchanged() -> None:
    said = [*everyone(), Nothing(), Fail("c", "m"), Cancel(), Text("a", (w.Logprob("a", -1.0, [97]),), "commentary")]

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(said), type=list[Said]) == said
