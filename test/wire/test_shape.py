"""Depth and number are judged before anything is decoded, and text is never taken for structure."""

import json
from typing import Any

import pytest

from mellea_responses.errors import InvalidRequest
from mellea_responses.limits import MAX_DEPTH, MAX_FIELD_BYTES, MAX_ITEMS, MAX_VALUES
from mellea_responses.wire.shape import Shape, check_depth, check_fields


def nested(depth: int, kind: str = "[") -> bytes:
    return b"[" * depth + b"]" * depth if kind == "[" else b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize("kind", ["[", "{"])
def test_depth_is_counted_to_the_level(kind: str) -> None:
    Shape().check(nested(MAX_DEPTH, kind), "a")
    with pytest.raises(InvalidRequest) as refused:
        Shape().check(nested(MAX_DEPTH + 1, kind), "input[0]")

    assert (refused.value.param, refused.value.code) == ("input[0]", "invalid_json")


@pytest.mark.parametrize("text", ["[" * 500, '"' * 500 + "[" * 500, "\\" * 501 + "{[" * 500, "\\\"[{,'" * 100_000])
def test_brackets_in_text_are_text(text: str) -> None:
    Shape(100).check(json.dumps({"text": text}).encode(), "a")


def test_what_follows_a_text_is_counted_again() -> None:
    with pytest.raises(InvalidRequest):
        Shape().check(b'["\\\\",' + nested(MAX_DEPTH) + b"]", "a")


@pytest.mark.parametrize("value", [b"[],", b"{},", b"1,1,1,", b'"","","",', b'"a":"","a":"","a":"",'])
def test_values_of_all_pieces_count_together(value: bytes) -> None:
    shape = Shape()
    shape.check(b"[" + value * (MAX_VALUES // 2) + b"1]", "input[0]")
    with pytest.raises(InvalidRequest) as refused:
        shape.check(b"[" + value * (MAX_VALUES // 2 + 10) + b"1]", "input[1]")

    assert refused.value.param == "input[1]"


def test_long_texts_cost_nothing_of_what_may_be_held() -> None:
    shape = Shape(100)

    for _ in range(10):
        shape.check(json.dumps({"text": "word, " * 100_000}).encode(), "a")


def test_what_is_decoded_already_is_judged_the_same() -> None:
    def deep(levels: int) -> Any:
        return json.loads(nested(levels, "{"))

    check_depth(deep(MAX_DEPTH), "schema")
    with pytest.raises(InvalidRequest) as refused:
        check_depth(deep(MAX_DEPTH + 1), "schema")

    assert refused.value.param == "schema"


LARGE = "x" * (MAX_FIELD_BYTES + 1)


@pytest.mark.parametrize("field", ["metadata", "include", "chat_template_kwargs", "text", "requirements", "model"])
def test_a_field_that_is_too_large_is_named(field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_fields(json.dumps({"input": "x", field: [LARGE]}).encode())

    assert refused.value.param == field


@pytest.mark.parametrize("body", [{"input": LARGE}, {"unknown": LARGE}, {"messages": LARGE}, [LARGE], LARGE])
def test_large_input_unknown_fields_and_wrong_types_are_left_to_the_decoder(body: Any) -> None:
    check_fields(json.dumps(body).encode())


def test_messages_of_a_chat_are_counted_and_judged_one_by_one() -> None:
    with pytest.raises(InvalidRequest) as many:
        check_fields(json.dumps({"messages": [{"role": "user", "content": "x" * 100}] * (MAX_ITEMS + 1)}).encode())
    wide = b'{"messages":[{},{"arguments":[' + b"[]," * 400_000 + b"1]}]}"
    with pytest.raises(InvalidRequest) as values:
        check_fields(wide)

    assert (many.value.param, values.value.param) == ("messages", "messages[1]")
