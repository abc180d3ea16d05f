"""Bodies are read strictly: every complaint names its place in the client's own words."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mellea_responses.errors import ApiError, ContentTooLarge, InvalidRequest
from mellea_responses.wire.decode import decode_create, decode_item_param, decode_tool_param
from mellea_responses.wire.request import CreateResponse

PYTHON = re.compile(r"\b(str|int|float|bool|dict|list|None|NoneType|Struct|Param|msgspec|Raw|UNSET|object of type)\b")


def refuse(body: Any) -> InvalidRequest | ContentTooLarge:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises((InvalidRequest, ContentTooLarge)) as caught:
        decode_create(raw)
    return caught.value  # type: ignore[return-value]  # one of the two


WRONG: dict[str, Any] = {
    "model": 5,
    "input": 5,
    "instructions": ["a"],
    "previous_response_id": {},
    "conversation": 5,
    "include": "a",
    "tools": {},
    "tool_choice": 5,
    "parallel_tool_calls": "true",
    "max_tool_calls": "1",
    "metadata": [],
    "text": "json",
    "format": "json",
    "response_format": [],
    "temperature": "0.5",
    "top_p": "1",
    "presence_penalty": True,
    "frequency_penalty": [],
    "top_logprobs": 1.5,
    "max_output_tokens": "16",
    "reasoning": "high",
    "stream": 1,
    "stream_options": True,
    "background": "no",
    "store": 0,
    "truncation": "sometimes",
    "service_tier": 1,
    "safety_identifier": [],
    "prompt_cache_key": 1,
    "user": {},
    "context_management": {},
    "requirements": "short",
    "seed": 1.5,
    "stop": 5,
    "top_k": "5",
    "min_p": "a",
    "repetition_penalty": {},
    "chat_template_kwargs": [],
    "generate": "no",
    "stream_id": 5,
}


def test_every_field_is_tried_with_a_wrong_type() -> None:
    assert WRONG.keys() == set(CreateResponse.__struct_fields__)


@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_type_is_told_with_the_field_as_param(field: str) -> None:
    error = refuse({"input": "hi", field: WRONG[field]})

    assert (error.status, error.param) == (400, field)
    assert not PYTHON.search(error.message), error.message


@pytest.mark.parametrize("field", WRONG)
def test_null_is_the_same_as_absent(field: str) -> None:
    assert decode_create(json.dumps({field: None}).encode()) == CreateResponse()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("top_p", 1.1),
        ("top_p", -1),
        ("presence_penalty", -2.1),
        ("frequency_penalty", 3),
        ("top_logprobs", 21),
        ("top_logprobs", -1),
        ("max_output_tokens", 0),
        ("max_output_tokens", -5),
        ("max_tool_calls", 0),
        ("top_k", -1),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("seed", 2**63),
        ("seed", 10**400),
        ("max_output_tokens", 1e999),
        ("stop", ["a"] * 65),
        ("metadata", {f"k{n}": "v" for n in range(17)}),
    ],
)
def test_a_value_out_of_range_is_told_with_the_field_as_param(field: str, value: Any) -> None:
    raw = json.dumps({"input": "hi", field: value}).replace("Infinity", "1e999").encode()

    error = refuse(raw)

    assert error.status == 400
    assert error.param == field or error.code == "invalid_json"
    assert not PYTHON.search(error.message), error.message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": {"summary": 1}}, "reasoning.summary"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "strict": "yes"}}}, "text.format.strict"),
        ({"text": {"verbosity": "loud"}}, "text.verbosity"),
        ({"conversation": {}}, "conversation.id"),
        ({"conversation": {"id": ""}}, "conversation.id"),
        ({"include": ["a", 5]}, "include[1]"),
        ({"metadata": {"k": 5}}, "metadata[...]"),
        ({"stop": ["a", 5]}, "stop[1]"),
        ({"stream_options": {"include_obfuscation": "x"}}, "stream_options.include_obfuscation"),
        ({"tool_choice": {"name": "f"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "some"}}, "tool_choice.mode"),
        (
            {"context_management": [{"type": "compaction", "compact_threshold": 0}]},
            "context_management[0].compact_threshold",
        ),
    ],
)
def test_a_wrong_value_inside_an_object_is_told_with_its_path(body: Any, param: str) -> None:
    error = refuse({"input": "hi", **body})

    assert error.param == param
    assert not PYTHON.search(error.message), error.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"[",
        b"nonsense",
        b"[]",
        b"5",
        b"null",
        b'"input"',
        b"{'input': 'hi'}",
        b'{"input": "hi",}',
        b'{"input": NaN}',
        b'{"temperature": Infinity}',
        b'{"input": "\xff"}',
        b'\xef\xbb\xbf{"input": "hi"}',
        b'{"input": "\\ud83d"}',
        b'{"input": "\\ude00"}',
        b'{"input": "\\ud83d x"}',
        b'{"input": "a\nb"}',
        b'{"input": ' + b"[" * 100_000,
        b'{"input": [' + b'{"a":' * 50_000,
        b'{"input": "hi"} {}',
        b'{"input": 01}',
    ],
    ids=lambda body: repr(body[:24]),
)
def test_a_body_that_is_no_json_object_is_the_client_s_mistake(body: bytes) -> None:
    error = refuse(body)

    assert error.status == 400
    assert error.code in ("invalid_json", "invalid_request")
    assert not PYTHON.search(error.message), error.message


def test_half_a_surrogate_pair_is_named_as_what_it_is() -> None:
    assert "surrogate" in refuse(b'{"input": "\\ud83d"}').message
    assert decode_create(b'{"input": "\\ud83d\\ude00"}').input == "\N{GRINNING FACE}"


@pytest.mark.timeout(20)
def test_a_long_body_that_is_cut_is_told_so_at_once() -> None:
    """Halves of pairs are looked for at its end only: through all of it, thirty such bodies take a minute."""
    for _ in range(30):
        assert "truncated" in refuse(b'{"input": "' + b"x" * 30_000_000).message


def test_of_a_key_said_twice_the_last_one_holds() -> None:
    assert decode_create(b'{"input": "a", "input": "b"}').input == "b"


def test_unknown_keys_are_ignored_everywhere() -> None:
    body = {
        "input": "hi",
        "client_metadata": {"a": 1},
        "reasoning": {"context": "x"},
        "text": {"x": 1},
        "include": ["something.new"],
        "stream_options": {"x": 1},
    }

    assert decode_create(json.dumps(body).encode()).include == ["something.new"]


def test_a_text_above_the_specification_s_limit_is_too_large_and_one_at_it_is_not() -> None:
    limit = 10_485_760

    assert decode_create(b'{"input": "%s"}' % (b"x" * limit)).input
    error = refuse(b'{"input": "%s"}' % (b"x" * (limit + 1)))
    assert (type(error), error.status, error.param) == (ContentTooLarge, 413, "input")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(sorted(WRONG)) | st.text(max_size=4), inner, max_size=3)
        ),
    )
)
def test_any_json_is_a_request_or_the_client_s_mistake(value: Any) -> None:
    read = read_or_refuse(msgspec.json.encode(value))

    assert isinstance(read, CreateResponse) or read.status == 400
    assert isinstance(read, CreateResponse) or not PYTHON.search(read.message), read


@given(st.binary(max_size=40))
def test_any_bytes_are_a_request_or_the_client_s_mistake(body: bytes) -> None:
    read = read_or_refuse(body)

    assert isinstance(read, CreateResponse) or read.status == 400


def read_or_refuse(body: bytes) -> CreateResponse | ApiError:
    try:
        return decode_create(body)
    except ApiError as error:
        return error


# ---------------------------------------------------------------- items


def item(value: Any) -> Any:
    return decode_item_param(json.dumps(value).encode(), "input[3]")


def refuse_item(value: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        item(value)
    return caught.value


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (5, "input[3]"),
        (None, "input[3]"),
        ([], "input[3]"),
        ("text", "input[3]"),
        ({}, "input[3].type"),
        ({"type": 5}, "input[3].type"),
        ({"type": ""}, "input[3].type"),
        ({"type": "musing"}, "input[3].type"),
        ({"content": "x"}, "input[3].type"),
        ({"type": "message", "role": "boss", "content": "x"}, "input[3].role"),
        ({"type": "message", "content": "x"}, "input[3].role"),
        ({"role": "boss", "content": "x"}, "input[3].role"),
        ({"role": "user", "content": 5}, "input[3].content"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[3].content[0].text"),
        ({"role": "user", "content": [{"type": "input_text", "text": 5}]}, "input[3].content[0].text"),
        ({"role": "user", "content": ["a", {"type": "input_smell"}]}, "input[3].content[1].type"),
        ({"role": "user", "content": [{"type": "input_image", "detail": "huge"}]}, "input[3].content[0].detail"),
        ({"role": "user", "content": [None]}, "input[3].content[0]"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[3].call_id"),
        ({"type": "function_call", "call_id": "c", "arguments": "{}"}, "input[3].name"),
        ({"type": "function_call", "call_id": "", "name": "f"}, "input[3].call_id"),
        ({"type": "function_call", "call_id": 7, "name": "f"}, "input[3].call_id"),
        ({"type": "function_call", "call_id": "c", "name": ""}, "input[3].name"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": 5}, "input[3].arguments"),
        ({"type": "function_call_output", "output": "x"}, "input[3].call_id"),
        ({"type": "function_call_output", "call_id": "c", "output": 5}, "input[3].output"),
        ({"type": "function_call_output", "call_id": "c", "output": [{"type": "x"}]}, "input[3].output[0].type"),
        ({"type": "custom_tool_call", "name": "f"}, "input[3].call_id"),
        ({"type": "reasoning", "summary": "text"}, "input[3].summary"),
        ({"type": "reasoning", "content": 5}, "input[3].content"),
        ({"type": "additional_tools"}, "input[3].tools"),
        ({"type": "compaction"}, "input[3].encrypted_content"),
        ({"type": "item_reference"}, "input[3].id"),
        ({"type": "item_reference", "id": ""}, "input[3].id"),
        ({"type": "input_image", "image_url": 5}, "input[3].image_url"),
    ],
)
def test_a_broken_item_is_told_with_its_path(value: Any, param: str) -> None:
    error = refuse_item(value)

    assert error.param == param
    assert not PYTHON.search(error.message), error.message


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"role": "user", "content": "x"}, "message"),
        ({"type": None, "role": "user", "content": "x"}, "message"),
        ({"role": "assistant", "content": None}, "message"),
        ({"call_id": "c", "name": "f", "arguments": "{}"}, "function_call"),
        ({"call_id": "c", "output": "x"}, "function_call_output"),
        ({"id": "msg_1"}, "item_reference"),
        ({"id": "msg_1", "type": None}, "item_reference"),
    ],
)
def test_a_type_left_out_is_added_where_it_can_only_be_one(value: Any, kind: str) -> None:
    assert item(value).__struct_config__.tag == kind


def test_another_server_s_receipt_is_taken_as_it_is() -> None:
    receipt = {"type": "web_search_call", "id": "ws_1", "status": "searching", "new": {"keys": [None]}}

    assert item(receipt) == receipt


def test_unknown_keys_and_nulls_in_items_and_parts_are_ignored() -> None:
    part = {"type": "output_text", "text": "a", "annotations": None, "parsed": {"a": 1}, "logprobs": None}
    read = item({"role": "assistant", "content": [part], "id": None, "status": None, "phase": None, "internal": 1})

    assert read.content[0].text == "a"


# ---------------------------------------------------------------- tools


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (5, "tools[1]"),
        (None, "tools[1]"),
        ({}, "tools[1].type"),
        ({"type": ""}, "tools[1].type"),
        ({"type": 5}, "tools[1].type"),
        ({"type": "function", "name": 5}, "tools[1].name"),
        ({"type": "function", "name": ""}, "tools[1].name"),
        ({"type": "function", "name": "has space"}, "tools[1].name"),
        ({"type": "function", "name": "x" * 129}, "tools[1].name"),
        ({"type": "function", "name": "f", "parameters": "{}"}, "tools[1].parameters"),
        ({"type": "function", "name": "f", "strict": "yes"}, "tools[1].strict"),
        ({"type": "function", "function": {}}, "tools[1].function.name"),
        ({"type": "namespace", "name": "n"}, "tools[1].tools"),
        ({"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}, "tools[1].tools[0].type"),
        ({"type": "tool_search", "execution": "elsewhere"}, "tools[1].execution"),
    ],
)
def test_a_broken_tool_is_told_with_its_path(value: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_tool_param(json.dumps(value).encode(), "tools[1]")

    assert caught.value.param == param
    assert not PYTHON.search(caught.value.message), caught.value.message


def test_a_tool_of_another_type_comes_back_as_it_is() -> None:
    assert decode_tool_param(b'{"type":"web_search","filters":null}', "tools[0]") == {
        "type": "web_search",
        "filters": None,
    }
