"""Every spelling of an item that clients use becomes the one canonical form."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mellea_responses.errors import InvalidRequest
from mellea_responses.normalize.items import normalize_input, normalize_item
from mellea_responses.wire import items as w
from mellea_responses.wire.decode import decode_create, decode_item_param

PNG = "data:image/png;base64,iVBORw0KGgo="


def items(*values: Any) -> list[dict[str, Any]]:
    request = decode_create(json.dumps({"input": list(values)}).encode())
    return [msgspec.to_builtins(item) for item in normalize_input(request.input)]


def one(value: Any) -> dict[str, Any]:
    [item] = items(value)
    return item


def content(value: Any) -> list[tuple[str, Any]]:
    return [
        (part["type"], part.get("text", part.get("refusal", part.get("image_url")))) for part in one(value)["content"]
    ]


@pytest.mark.parametrize("value", ["hi", ""])
def test_a_string_is_a_user_s_message(value: str) -> None:
    [item] = normalize_input(value)

    assert msgspec.to_builtins(item) == {
        "type": "message",
        "id": w.item_id(item),
        "status": "completed",
        "role": "user",
        "content": [{"type": "input_text", "text": value}],
    }


def test_no_input_is_no_items() -> None:
    assert normalize_input(None) == () == normalize_input([])


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
@pytest.mark.parametrize("typed", [{}, {"type": "message"}, {"type": None}])
def test_a_message_may_leave_out_its_type_and_have_a_string_for_content(role: str, typed: Any) -> None:
    item = one({**typed, "role": role, "content": "x"})

    kind = "output_text" if role == "assistant" else "input_text"
    assert (item["role"], item["status"], item["content"][0]["type"], item["content"][0]["text"]) == (
        role,
        "completed",
        kind,
        "x",
    )


@pytest.mark.parametrize("kind", ["input_text", "output_text", "text", "summary_text", "reasoning_text"])
def test_a_text_of_any_kind_becomes_the_kind_of_its_role(kind: str) -> None:
    assert content({"role": "user", "content": [{"type": kind, "text": "x"}]}) == [("input_text", "x")]
    assert content({"role": "assistant", "content": [{"type": kind, "text": "x"}]}) == [("output_text", "x")]


def test_bare_and_untyped_parts_are_texts() -> None:
    assert content({"role": "user", "content": ["a", {"text": "b"}]}) == [("input_text", "a"), ("input_text", "b")]


def test_a_refusal_stays_a_refusal() -> None:
    assert content({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}) == [("refusal", "no")]


def test_what_one_agent_says_to_another_is_a_user_s_message() -> None:
    parts = [{"type": "input_text", "text": "Task:"}, {"type": "encrypted_content", "encrypted_content": "look"}]
    item = one({"type": "agent_message", "id": "a1", "author": "/root", "recipient": "/root/kid", "content": parts})

    assert (item["type"], item["role"], item["id"]) == ("message", "user", "a1")
    assert [part["text"] for part in item["content"]] == ["Task:", "look"]
    with pytest.raises(InvalidRequest) as caught:
        one({"type": "agent_message", "content": []})
    assert caught.value.param == "input[0].content"


def test_readable_encrypted_content_is_text_and_an_opaque_one_is_dropped() -> None:
    parts = [
        {"type": "encrypted_content", "encrypted_content": "words"},
        {"type": "encrypted_content", "encrypted_content": None},
    ]

    assert content({"role": "assistant", "content": parts}) == [("output_text", "words")]


@pytest.mark.parametrize("role", ["user", "system", "developer"])
@pytest.mark.parametrize("empty", [{"content": []}, {"content": None}, {}])
def test_a_message_without_content_is_refused_with_its_place(role: str, empty: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        items({"role": "user", "content": "ok"}, {"type": "message", "role": role, **empty})

    assert caught.value.param == "input[1].content"


@pytest.mark.parametrize("value", ["", [{"type": "input_text", "text": ""}]])
def test_an_empty_text_is_content(value: Any) -> None:
    assert content({"role": "user", "content": value}) == [("input_text", "")]


def test_an_assistant_s_turn_with_calls_may_have_null_content() -> None:
    assert one({"role": "assistant", "content": None})["content"] == []


def test_a_phase_is_kept() -> None:
    assert one({"role": "assistant", "content": "x", "phase": "commentary"})["phase"] == "commentary"
    assert "phase" not in one({"role": "assistant", "content": "x", "phase": None})


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        (None, "completed"),
        ("completed", "completed"),
        ("incomplete", "incomplete"),
        ("in_progress", "incomplete"),
        ("searching", "completed"),
    ],
)
def test_what_comes_in_as_history_is_over(given_: str | None, kept: str) -> None:
    assert one({"role": "assistant", "content": "x", "status": given_})["status"] == kept


@pytest.mark.parametrize(
    ("value", "prefix"),
    [
        ({"role": "user", "content": "x"}, "msg_"),
        ({"type": "reasoning", "summary": []}, "rs_"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, "fc_"),
        ({"type": "function_call_output", "call_id": "c", "output": "x"}, "fco_"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}, "ctc_"),
        ({"type": "custom_tool_call_output", "call_id": "c", "output": "x"}, "ctco_"),
        ({"type": "tool_search_call", "call_id": "c", "arguments": {}}, "tsc_"),
        ({"type": "tool_search_output", "call_id": "c", "tools": []}, "tso_"),
        ({"type": "additional_tools", "tools": []}, "at_"),
        ({"type": "compaction", "encrypted_content": "x"}, "cmp_"),
        ({"type": "web_search_call", "status": "completed"}, "ws_"),
        ({"type": "computer_call_output", "call_id": "c", "output": {}}, "item_"),
    ],
)
def test_an_item_without_an_id_gets_one_and_one_with_an_id_keeps_it(value: Any, prefix: str) -> None:
    assert one(value)["id"].startswith(prefix)
    assert one({**value, "id": None})["id"].startswith(prefix)
    assert one({**value, "id": "theirs"})["id"] == "theirs"


@pytest.mark.parametrize(
    ("given_", "kept"),
    [('{"a":1}', '{"a":1}'), ({"a": 1}, '{"a":1}'), (None, "{}"), ("", "{}"), ("{cut", "{cut"), (" {} ", " {} ")],
)
def test_arguments_come_as_text_an_object_or_not_at_all(given_: Any, kept: str) -> None:
    assert one({"type": "function_call", "call_id": "c", "name": "f", "arguments": given_})["arguments"] == kept


def test_missing_arguments_are_an_empty_object() -> None:
    assert one({"type": "function_call", "call_id": "c", "name": "f"})["arguments"] == "{}"


@pytest.mark.parametrize("kind", ["function_call_output", "custom_tool_call_output"])
@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        ("x", "x"),
        ("", ""),
        (None, ""),
        ([{"type": "input_text", "text": "x"}], [{"type": "input_text", "text": "x"}]),
        ([{"type": "output_text", "text": "x"}], [{"type": "input_text", "text": "x"}]),
        ([{"type": "text", "text": "x"}], [{"type": "input_text", "text": "x"}]),
        ([{"type": "refusal", "refusal": "x"}], [{"type": "input_text", "text": "x"}]),
        ([{"type": "input_image", "image_url": PNG}], [{"type": "input_image", "image_url": PNG, "detail": "auto"}]),
        (
            [{"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}],
            [{"type": "input_image", "image_url": PNG, "detail": "low"}],
        ),
        ([], []),
    ],
)
def test_an_output_is_a_string_or_a_list_of_parts(kind: str, given_: Any, kept: Any) -> None:
    assert one({"type": kind, "call_id": "c", "output": given_})["output"] == kept


def test_an_output_that_is_an_object_becomes_its_json() -> None:
    assert one({"type": "function_call_output", "call_id": "c", "output": {"a": [1]}})["output"] == '{"a":[1]}'


def test_a_custom_call_keeps_its_text_and_namespace() -> None:
    item = one({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "free {", "namespace": "ns"})

    assert (item["input"], item["namespace"]) == ("free {", "ns")


@pytest.mark.parametrize(
    ("value", "summary", "text"),
    [
        ({}, [], None),
        ({"summary": None, "content": None, "encrypted_content": None}, [], None),
        ({"summary": [{"type": "summary_text", "text": "s"}]}, ["s"], None),
        ({"summary": [{"type": "text", "text": "s"}]}, ["s"], None),
        ({"content": "c"}, [], ["c"]),
        ({"content": [{"type": "reasoning_text", "text": "c"}, {"type": "text", "text": "d"}]}, [], ["c", "d"]),
        ({"content": [], "summary": []}, [], None),
    ],
)
def test_reasoning_comes_in_any_form(value: Any, summary: list[str], text: list[str] | None) -> None:
    item = one({"type": "reasoning", **value})

    assert [part["text"] for part in item["summary"]] == summary
    assert (None if "content" not in item else [part["text"] for part in item["content"]]) == text
    assert "encrypted_content" not in item


def test_sealed_reasoning_travels_on() -> None:
    assert one({"type": "reasoning", "encrypted_content": "sealed"})["encrypted_content"] == "sealed"


@pytest.mark.parametrize(
    "value",
    [
        {"type": "input_text", "text": "x"},
        {"type": "input_image", "image_url": PNG},
        {"type": "input_image", "image_url": {"url": PNG}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        {"type": "input_file", "file_data": "AA=="},
    ],
)
def test_a_bare_part_is_a_user_s_message_around_it(value: Any) -> None:
    item = one(value)

    assert (item["type"], item["role"], [part["type"] for part in item["content"]]) == (
        "message",
        "user",
        [value["type"]],
    )


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "input_image"}, "image_url"),
        ({"type": "input_image", "image_url": ""}, "image_url"),
        ({"type": "input_file"}, "file_data"),
    ],
)
def test_a_picture_or_file_that_is_none_is_refused_with_its_place(part: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        one({"role": "user", "content": ["a", part]})

    assert caught.value.param == "input[0].content[1]"


def test_a_search_s_arguments_stay_an_object() -> None:
    item = one({"type": "tool_search_call", "call_id": "c", "arguments": {"q": [1]}, "execution": "client"})

    assert (item["arguments"], item["execution"]) == ({"q": [1]}, "client")


def test_items_keep_their_order() -> None:
    values = [
        {"type": "function_call_output", "call_id": "c", "output": "x", "id": "1"},
        {"role": "user", "content": "x", "id": "2"},
        {"type": "function_call", "call_id": "c", "name": "f", "id": "3"},
        {"type": "reasoning", "id": "4"},
        {"type": "web_search_call", "id": "5"},
    ]

    assert [item["id"] for item in items(*values)] == ["1", "2", "3", "4", "5"]


# ---------------------------------------------------------------- what we emit comes back unchanged

text = st.text(max_size=6)
ids = st.text("abc", min_size=1, max_size=4)
done = st.sampled_from(["completed", "incomplete"])
citations = st.lists(st.builds(w.UrlCitation, text, text, st.just(0), st.just(1)), max_size=1)
emitted = st.one_of(
    st.builds(w.Message, ids, done, st.just("user"), st.lists(st.builds(w.InputText, text), min_size=1, max_size=2)),
    st.builds(
        w.Message,
        ids,
        done,
        st.just("assistant"),
        st.lists(st.builds(w.OutputText, text) | st.builds(w.RefusalPart, text), min_size=1, max_size=2),
        st.just(msgspec.UNSET) | st.sampled_from(["commentary", "final_answer"]),
    ),
    st.builds(
        w.Reasoning,
        ids,
        st.lists(st.builds(w.SummaryText, text), max_size=2),
        st.just(msgspec.UNSET) | st.lists(st.builds(w.ReasoningText, text), min_size=1, max_size=2),
        status=done,
    ),
    st.builds(w.FunctionCall, ids, ids, ids, st.just("{}") | st.just('{"a": 1}'), done, st.just(msgspec.UNSET) | ids),
    st.builds(w.FunctionCallOutput, ids, ids, text | st.lists(st.builds(w.InputText, text), max_size=2), done),
    st.builds(w.CustomToolCall, ids, ids, ids, text, done),
    st.builds(w.ToolSearchCall, ids, ids, st.just({"q": "x"}), done),
    st.fixed_dictionaries({"type": st.just("web_search_call"), "id": ids, "status": st.just("completed")}),
)


def read(item: w.Item) -> Any:
    return normalize_item(decode_item_param(msgspec.json.encode(item), "input[0]"), "input[0]")


@given(emitted)
def test_an_item_that_we_emit_comes_back_as_the_same_item(item: w.Item) -> None:
    assert read(item) == item


messy = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"])},
    optional={
        "type": st.just("message"),
        "status": st.none() | text,
        "id": st.none() | ids,
        "extra": text,
        "content": text
        | st.lists(
            st.fixed_dictionaries({"type": st.sampled_from(["text", "input_text", "output_text"]), "text": text}),
            min_size=1,
            max_size=3,
        ),
    },
).filter(lambda item: "content" in item)


@given(st.lists(messy, max_size=4))
def test_normalising_twice_is_normalising_once_and_keeps_the_order(values: list[Any]) -> None:
    once = normalize_input([msgspec.Raw(msgspec.json.encode(value)) for value in values])

    twice = normalize_input([msgspec.Raw(msgspec.json.encode(item)) for item in once])

    assert twice == once
    words = [
        value["content"] if isinstance(value["content"], str) else "".join(p["text"] for p in value["content"])
        for value in values
    ]
    assert ["".join(part.text for part in item.content) for item in once] == words  # type: ignore[union-attr]  # all messages


@given(citations)
def test_sources_and_probabilities_of_an_answer_are_not_asked_back(notes: list[w.UrlCitation]) -> None:
    item = w.Message("msg_1", "completed", "assistant", [w.OutputText("a", notes, [w.Logprob("a", -1.0, [97])])])

    assert read(item) == w.Message("msg_1", "completed", "assistant", [w.OutputText("a")])
