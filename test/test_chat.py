"""Any script of steps, as chat: the chunks rebuild the whole answer, and the official SDK knows every object."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from mellea_responses.builder import Builder
from mellea_responses.chat import Chunks, chat_id, to_completion
from mellea_responses.drafts import View
from mellea_responses.turn import (
    Annotation,
    Call,
    CallArgs,
    CallEnd,
    ItemDone,
    Nothing,
    Refusal,
    Said,
    Stop,
    Text,
    Thought,
    Usage,
)
from mellea_responses.wire.items import Logprob
from mellea_responses.wire.response import Response

Json = dict[str, Any]

# ---------------------------------------------------------------- scripts

words = st.text(max_size=5)
logprobs = st.none() | st.tuples(st.builds(Logprob, words, st.floats(-9, 0), st.just([97])))
spoken = st.one_of(
    st.builds(Text, words, logprobs, st.sampled_from([None, "commentary", "final_answer"])),
    st.builds(Thought, words),
    st.builds(Refusal, words),
    st.builds(Annotation, st.just("https://example.org"), words, st.integers(0, 9), st.integers(0, 9)),
    st.builds(Usage, st.integers(0, 99), st.integers(0, 99), st.integers(0, 9), st.integers(0, 9)),
    st.just(ItemDone({"type": "web_search_call", "status": "completed"})),
)


@st.composite
def calls(draw: st.DrawFn, key: str, kinds: tuple[Any, ...]) -> list[Said]:
    """One call, whole or never ended."""
    named = Call(
        key, draw(st.sampled_from("fg")), draw(st.sampled_from([None, "far"])), kind=draw(st.sampled_from(kinds))
    )
    steps: list[Said] = [named, CallArgs(key, "{"), CallArgs(key, "}"), CallEnd(key)]
    return steps[: draw(st.sampled_from([4, 4, 4, 3, 1]))]


@st.composite
def scripts(draw: st.DrawFn, kinds: tuple[Any, ...] = ("function", "custom", "tool_search")) -> list[Said]:
    """Words and calls, woven together at random, with an end."""
    tracks = [draw(st.lists(spoken, max_size=8))]
    tracks += [draw(calls(f"k{n}", kinds)) for n in range(draw(st.integers(0, 3)))]
    order = draw(st.permutations([number for number, track in enumerate(tracks) for _ in track]))
    pieces = [iter(track) for track in tracks]
    woven: list[Said] = [next(pieces[number]) for number in order]
    end = draw(st.sampled_from([Stop(), Stop(), Stop("length"), Stop("content_filter")]))
    return [*woven, *([] if woven else [Nothing()]), end]


def builder_of(view: View = "content") -> Builder:
    count = itertools.count()
    base = Response(id="resp_1", created_at=1, status="in_progress", model="m")
    return Builder(base, mint=lambda kind: f"{kind}_{next(count)}", clock=lambda: 5, view=view)


def tell(script: list[Said], view: View = "content", **asked: bool) -> tuple[list[Json], Json]:
    """The chunks and the whole answer, as they cross the wire."""
    builder = builder_of(view)
    chunks = Chunks(builder.response, thoughts=view != "hidden", **asked)
    made = [chunks.start()]
    for said in script:
        builder.hear(said)
        if (chunk := chunks.hear(said)) is not None:
            made.append(chunk)
    made += chunks.end(builder.response)
    whole = to_completion(builder.response, logprobs=asked.get("logprobs", False))
    return plain(made), plain(whole)


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def rebuild(chunks: list[Json]) -> Json:
    """The message as a client puts it together: texts are joined, lists grow, the rest is taken as it comes."""
    message: Json = {"content": None, "refusal": None, "annotations": []}
    probable: list[Json] = []
    reason, usage = None, None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            for key, value in choice["delta"].items():
                if key == "tool_calls":
                    for call in value:
                        assert call.pop("index") == len(message.setdefault(key, []))
                        message[key].append(call)
                elif value is not None:
                    old = message.get(key)
                    message[key] = value if old is None else old + value
            probable += (choice["logprobs"] or {}).get("content", [])
            reason = choice["finish_reason"] or reason
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    if probable:
        choice["logprobs"] = {"content": probable, "refusal": None}
    first = {key: chunks[0][key] for key in ("id", "created", "model")}
    return {**first, "object": "chat.completion", "choices": [choice], "usage": usage}


# ---------------------------------------------------------------- promises


@given(scripts(), st.sampled_from(["content", "hidden"]), st.booleans())
def test_the_chunks_of_any_script_rebuild_the_whole_answer(script: list[Said], view: View, probable: bool) -> None:
    chunks, whole = tell(script, view, logprobs=probable, usage=True)

    assert rebuild(chunks) == whole


@given(scripts(kinds=("function",)))
def test_the_sdk_puts_the_chunks_together_to_the_same_answer(script: list[Said]) -> None:
    chunks, whole = tell(script, logprobs=True)
    state = ChatCompletionStreamState()

    for chunk in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    choice = state.current_completion_snapshot.choices[0]

    expected = ChatCompletion.model_validate(whole).choices[0]
    assert choice.finish_reason == expected.finish_reason
    assert choice.message.content == expected.message.content
    assert choice.message.refusal == expected.message.refusal
    assert getattr(choice.message, "reasoning_content", None) == getattr(expected.message, "reasoning_content", None)
    assert [call.id for call in choice.message.tool_calls or []] == [
        call.id for call in expected.message.tool_calls or []
    ]


@given(scripts())
def test_every_object_is_one_that_the_sdk_knows(script: list[Said]) -> None:
    chunks, whole = tell(script, logprobs=True, usage=True)

    ChatCompletion.model_validate(whole)
    for chunk in chunks:
        for choice in chunk["choices"]:  # the SDK's chunks know no calls of custom tools
            calls = choice["delta"].get("tool_calls", [])
            choice["delta"]["tool_calls"] = [call for call in calls if call["type"] == "function"]
        ChatCompletionChunk.model_validate(chunk)


@given(scripts())
def test_the_first_chunk_has_the_role_and_one_of_the_last_the_reason(script: list[Said]) -> None:
    chunks, _ = tell(script, usage=True)

    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]]
    assert [("role" in chunk["choices"][0]["delta"]) for chunk in chunks if chunk["choices"]][:2] == [True, False]
    assert all(reason is None for reason in reasons[:-1])
    assert reasons[-1] is not None
    assert chunks[-1]["choices"] == []
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks} == {("chatcmpl-1", 1, "m")}


WHOLE_CALL: list[Said] = [Call("k", "f", call_id="c1"), CallArgs("k", '{"x"'), CallArgs("k", ":1}"), CallEnd("k")]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([Text("x"), Stop()], "stop"),
        ([Text("x"), Stop("length")], "length"),
        ([Text("x"), Stop("content_filter")], "content_filter"),
        ([*WHOLE_CALL, Stop()], "tool_calls"),
        ([*WHOLE_CALL, Stop("length")], "length"),
        ([Refusal("no"), Stop()], "stop"),
    ],
)
def test_the_reason_is_the_true_one(script: list[Said], reason: str) -> None:
    _, whole = tell(script)

    assert whole["choices"][0]["finish_reason"] == reason


@pytest.mark.parametrize(
    ("script", "content"),
    [
        ([Text("x"), *WHOLE_CALL, Stop()], "x"),
        ([*WHOLE_CALL, Stop()], None),
        ([Refusal("no"), Stop()], None),
        ([Nothing(), Stop()], ""),
        ([Thought("hm"), Stop()], ""),
    ],
)
def test_content_is_null_only_where_calls_or_a_refusal_stand_in_its_place(
    script: list[Said], content: str | None
) -> None:
    _, whole = tell(script)

    assert whole["choices"][0]["message"]["content"] == content


def test_calls_leave_whole_and_together_after_all_words() -> None:
    free: list[Said] = [Call("z", "w", kind="custom", call_id="c2"), CallArgs("z", "free"), CallEnd("z")]
    chunks, _ = tell([*WHOLE_CALL, Text("so"), *free, Stop()])

    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [
        {"role": "assistant", "content": None},
        {"content": "so"},
        {
            "tool_calls": [
                {"type": "function", "index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"x":1}'}},
                {"type": "custom", "index": 1, "id": "c2", "custom": {"name": "w", "input": "free"}},
            ]
        },
        {},
    ]


def test_a_call_that_was_cut_never_leaves() -> None:
    chunks, whole = tell([*WHOLE_CALL[:2], Stop("length")])

    assert "tool_calls" not in str(chunks)
    assert "tool_calls" not in whole["choices"][0]["message"]


def test_citations_count_from_the_start_of_the_whole_content() -> None:
    note = Annotation("https://example.org", "Source", 0, 3)
    _, whole = tell([Text("One. "), Thought("hm"), Text("Two."), note, Stop()])

    message = whole["choices"][0]["message"]
    citation = message["annotations"][0]["url_citation"]
    assert message["content"][citation["start_index"] : citation["end_index"]] == "Two"


def test_reasoning_shows_only_where_the_server_shows_it() -> None:
    shown, hidden = tell([Thought("hm"), Text("x"), Stop()]), tell([Thought("hm"), Text("x"), Stop()], "hidden")

    assert shown[1]["choices"][0]["message"]["reasoning_content"] == "hm"
    assert "hm" not in str(hidden)


def test_probabilities_show_only_where_the_client_asked() -> None:
    script: list[Said] = [Text("x", (Logprob("x", -0.5, [120]),)), Stop()]

    asked, unasked = tell(script, logprobs=True)[1], tell(script)[1]

    assert asked["choices"][0]["logprobs"]["content"][0]["logprob"] == -0.5
    assert unasked["choices"][0]["logprobs"] is None


def test_usage_is_spelled_as_chat_spells_it() -> None:
    _, whole = tell([Text("x"), Usage(10, 5, cached_tokens=4, reasoning_tokens=2), Stop()])

    assert whole["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }


def test_the_id_has_the_digits_of_the_responses_id() -> None:
    assert chat_id("resp_0123abcd") == "chatcmpl-0123abcd"
