"""Whatever is wrong with a request is a 4xx with a code and the path of the wrong place, and no program hears of it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from support import oracle
from support.raw import Answer, Request, ask, post
from support.serving import serving
from support.stand_in import Json

pytestmark = pytest.mark.asyncio(loop_scope="module")
HEARD: list[Any] = []


def serve(input: Any) -> str:
    HEARD.append(input)
    return "x"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url() -> AsyncIterator[str]:
    async with serving(serve) as address:
        yield address


def heard() -> int:
    """How often the program was called since this was asked last."""
    count = len(HEARD)
    HEARD.clear()
    return count


def refused(answer: Answer, param: str | None = None) -> None:
    assert not heard()
    assert answer.status == 400, answer.body[:500]
    oracle.check_error(answer.json)
    assert answer.headers["content-type"].split(";")[0] == "application/json"
    assert answer.error["type"] == "invalid_request_error"
    assert param is None or answer.error["param"] == param
    assert len(answer.body) < 4096


async def sent(url: str, content: bytes) -> Answer:
    return await ask(url, Request("POST", "/v1/responses", content, {"content-type": "application/json"}))


# ---------------------------------------------------------------- bodies

BODIES: dict[str, bytes] = {
    "nothing": b"",
    "spaces": b"   ",
    "cut": b'{"input":',
    "words": b"hello",
    "a number": b"5",
    "a string": b'"x"',
    "a list": b"[]",
    "null": b"null",
    "true": b"true",
    "two objects": b'{"input":"x"}{"input":"y"}',
    "a comma too many": b'{"input":"x",}',
    "single quotes": b"{'input':'x'}",
    "NaN": b'{"input":"x","temperature":NaN}',
    "Infinity": b'{"input":"x","temperature":Infinity}',
    "a raw control character": b'{"input":"a\x01b"}',
    "no UTF-8": b'{"input":"\xff\xfe"}',
    "UTF-16": '{"input":"x"}'.encode("utf-16"),
    "an overlong sequence": b'{"input":"\xc0\xaf"}',
    "a surrogate as UTF-8": b'{"input":"\xed\xa0\xbd"}',
    "half a surrogate pair": b'{"input":"\\ud83d"}',
    "the other half": b'{"input":"\\udf0a"}',
    "halves in the wrong order": b'{"input":"\\udf0a\\ud83d"}',
    "half a pair in a key": b'{"input":"x","metadata":{"\\ud83d":"x"}}',
    "half a pair in an item": b'{"input":[{"role":"user","content":"\\ud83d"}]}',
    "half a pair in a tool": b'{"input":"x","tools":[{"type":"function","name":"f","description":"\\ud83d"}]}',
    "half a pair in an unknown key": b'{"input":"x","unknown":"\\ud83d"}',
    "deep lists": b'{"input":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep objects": b'{"input":"x","metadata":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "deep in an unknown key": b'{"input":"x","unknown":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep in a tool": b'{"input":"x","tools":[{"type":"function","name":"f","parameters":'
    + b'{"a":' * 50_000
    + b"1"
    + b"}" * 50_000
    + b"}]}",
    "deep in an item": b'{"input":[{"role":"user","content":' + b"[" * 50_000 + b"]" * 50_000 + b"}]}",
    "deep without an end": b'{"input":' + b"[" * 1_000_000,
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_that_is_no_json_object_is_refused(url: str, name: str) -> None:
    answer = await sent(url, BODIES[name])

    assert not heard()
    assert answer.status == 400, answer.body[:300]
    oracle.check_error(answer.json)
    assert answer.error["code"] in {"invalid_json", "invalid_request"}
    assert len(answer.body) < 4096


async def test_a_byte_order_mark_is_no_reason_to_fail_with_a_riddle(url: str) -> None:
    answer = await sent(url, b'\xef\xbb\xbf{"input":"x"}')
    HEARD.clear()

    assert answer.status in {200, 400}


@pytest.mark.parametrize("name", ["half a surrogate pair", "half a pair in an item", "half a pair in a tool"])
async def test_half_a_surrogate_pair_is_called_by_its_name(url: str, name: str) -> None:
    answer = await sent(url, BODIES[name])

    assert "surrogate" in answer.error["message"]


# ---------------------------------------------------------------- fields of the wrong type

STRING: list[Any] = [5, True, [], {}]
BOOLEAN: list[Any] = ["true", 1, 0, []]
INTEGER: list[Any] = ["5", 1.5, True, []]
NUMBER: list[Any] = ["0.5", True, [], {}]
OBJECT: list[Any] = ["x", 5, [], True]
LIST: list[Any] = ["x", 5, {}, True]
FIELDS: dict[str, list[Any]] = {
    "model": STRING,
    "instructions": STRING,
    "previous_response_id": STRING,
    "truncation": [*STRING, "sometimes"],
    "service_tier": STRING,
    "safety_identifier": STRING,
    "prompt_cache_key": STRING,
    "user": STRING,
    "stream": BOOLEAN,
    "store": BOOLEAN,
    "background": BOOLEAN,
    "parallel_tool_calls": BOOLEAN,
    "max_output_tokens": [*INTEGER, 0, -1],
    "max_tool_calls": [*INTEGER, 0, -1],
    "top_logprobs": [*INTEGER, -1, 21],
    "seed": [*INTEGER, 2**64, -(2**64)],
    "top_k": [*INTEGER, -1],
    "temperature": [*NUMBER, -0.1, 2.1],
    "top_p": [*NUMBER, -0.1, 1.1],
    "min_p": [*NUMBER, -0.1, 1.1],
    "presence_penalty": [*NUMBER, -2.1, 2.1],
    "frequency_penalty": [*NUMBER, -2.1, 2.1],
    "repetition_penalty": [*NUMBER, 0, -1],
    "include": LIST,
    "tools": LIST,
    "requirements": LIST,
    "metadata": OBJECT,
    "text": OBJECT,
    "reasoning": OBJECT,
    "stream_options": OBJECT,
    "chat_template_kwargs": OBJECT,
    "tool_choice": [5, True, [], "sometimes"],
    "stop": [5, True, {}],
    "input": [5, True, {}, 1.5],
}


@pytest.mark.parametrize(
    ("field", "value"),
    [pytest.param(field, value, id=f"{field}={value!r}") for field, values in FIELDS.items() for value in values],
)
async def test_a_field_of_the_wrong_type_or_range_is_refused_by_its_name(url: str, field: str, value: Any) -> None:
    answer = await post(url, {"input": "x", field: value})

    refused(answer, field)


@pytest.mark.parametrize("field", FIELDS)
async def test_null_is_the_same_as_absent(url: str, field: str) -> None:
    answer = await post(url, {"input": "x", field: None})
    HEARD.clear()

    assert answer.status == (400 if field == "input" else 200)


@pytest.mark.parametrize("literal", ["1e999", "-1e999", "1" * 400, "1e400", "0.1" + "0" * 400 + "1"])
async def test_numbers_beyond_all_bounds_do_no_harm(url: str, literal: str) -> None:
    for field in ("temperature", "max_output_tokens", "seed"):
        answer = await sent(url, b'{"input":"x","%s":%s}' % (field.encode(), literal.encode()))
        assert answer.status == 400 or literal.startswith("0.1")
        HEARD.clear()


# ---------------------------------------------------------------- inside the fields


def item(**fields: Any) -> Json:
    return {"input": [fields]}


def part(**fields: Any) -> Json:
    return item(role="user", content=[fields])


def tool(**fields: Any) -> Json:
    return {"input": "x", "tools": [fields]}


def schema(**fields: Any) -> Json:
    return {"input": "x", "text": {"format": {"type": "json_schema", **fields}}}


USER = {"role": "user", "content": "x"}
FUNCTION = {"type": "function", "name": "f"}
INSIDE: list[tuple[str, Json, str]] = [
    ("no input", {"model": "m"}, "input"),
    ("null input", {"input": None}, "input"),
    ("an empty list", {"input": []}, "input"),
    ("a number for an item", {"input": [5]}, "input[0]"),
    ("null for an item", {"input": [None]}, "input[0]"),
    ("a text for an item", {"input": ["x"]}, "input[0]"),
    ("a list for an item", {"input": [[USER]]}, "input[0]"),
    ("an empty item", {"input": [{}]}, "input[0]"),
    ("the second item", {"input": [USER, {"type": "musing"}]}, "input[1].type"),
    ("a type that is no text", item(type=5), "input[0].type"),
    ("an unknown role", item(role="boss", content="x"), "input[0].role"),
    ("a role that is no text", item(role=5, content="x"), "input[0].role"),
    ("a message without a role", item(type="message", content="x"), "input[0].role"),
    ("a message without content", item(role="user"), "input[0].content"),
    ("null content", item(role="user", content=None), "input[0].content"),
    ("empty content", item(role="user", content=[]), "input[0].content"),
    ("content that is a number", item(role="user", content=5), "input[0].content"),
    ("content that is an object", item(role="user", content={}), "input[0].content"),
    ("an unknown part", part(type="input_smell", text="x"), "input[0].content[0].type"),
    ("a part without text", part(type="input_text"), "input[0].content[0].text"),
    ("a part with a number for text", part(type="input_text", text=7), "input[0].content[0].text"),
    ("a part that is a number", item(role="user", content=[5]), "input[0].content[0]"),
    ("null for a part", item(role="user", content=[None]), "input[0].content[0]"),
    ("an image of nothing", part(type="input_image", image_url=None), "input[0].content[0]"),
    ("an image that is a number", part(type="input_image", image_url=5), "input[0].content[0].image_url"),
    ("a file of nothing", part(type="input_file"), "input[0].content[0]"),
    ("a call without call_id", item(type="function_call", name="f", arguments="{}"), "input[0].call_id"),
    ("an empty call_id", item(type="function_call", call_id="", name="f", arguments="{}"), "input[0].call_id"),
    ("a call without a name", item(type="function_call", call_id="c", arguments="{}"), "input[0].name"),
    (
        "arguments that are a number",
        item(type="function_call", call_id="c", name="f", arguments=5),
        "input[0].arguments",
    ),
    ("an output without call_id", item(type="function_call_output", output="x"), "input[0].call_id"),
    ("an output that is a number", item(type="function_call_output", call_id="c", output=5), "input[0].output"),
    ("an orphan output", item(type="function_call_output", call_id="c", output="x"), "input"),
    ("a reference without id", item(type="item_reference"), "input[0].id"),
    ("reasoning with a number", item(type="reasoning", summary=5), "input[0].summary"),
    ("a tool that is a number", {"input": "x", "tools": [5]}, "tools[0]"),
    ("null for a tool", {"input": "x", "tools": [None]}, "tools[0]"),
    ("a tool without a type", tool(name="f"), "tools[0].type"),
    ("a tool type that is a number", tool(type=5), "tools[0].type"),
    ("a function without a name", tool(type="function"), "tools[0].name"),
    ("an empty name", tool(type="function", name=""), "tools[0].name"),
    ("a name with spaces", tool(type="function", name="a b"), "tools[0].name"),
    ("a name that is too long", tool(type="function", name="a" * 129), "tools[0].name"),
    ("parameters that are a text", tool(type="function", name="f", parameters="x"), "tools[0].parameters"),
    ("strict that is a text", tool(type="function", name="f", strict="yes"), "tools[0].strict"),
    ("two tools of one name", {"input": "x", "tools": [FUNCTION, FUNCTION]}, "tools[1].name"),
    ("a namespace without tools", tool(type="namespace", name="n"), "tools[0].tools"),
    ("required without tools", {"input": "x", "tool_choice": "required"}, "tool_choice"),
    (
        "a choice of nobody",
        {"input": "x", "tools": [FUNCTION], "tool_choice": {**FUNCTION, "name": "g"}},
        "tool_choice",
    ),
    ("a choice without a type", {"input": "x", "tools": [FUNCTION], "tool_choice": {"name": "f"}}, "tool_choice.type"),
    ("a hosted choice", {"input": "x", "tools": [FUNCTION], "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
    ("an unknown format", {"input": "x", "text": {"format": {"type": "yaml"}}}, "text.format.type"),
    ("a format without a type", {"input": "x", "text": {"format": {}}}, "text.format.type"),
    ("a schema without a name", schema(schema={"type": "object"}), "text.format.name"),
    ("a name without a schema", schema(name="n"), "text.format.schema"),
    ("a schema that is a text", schema(name="n", schema="x"), "text.format.schema"),
    ("an unknown verbosity", {"input": "x", "text": {"verbosity": "loud"}}, "text.verbosity"),
    ("an unknown effort", {"input": "x", "reasoning": {"effort": "heroic"}}, "reasoning.effort"),
    ("an unknown summary", {"input": "x", "reasoning": {"summary": "long"}}, "reasoning.summary"),
    ("a number in metadata", {"input": "x", "metadata": {"a": 5}}, "metadata"),
    ("a long value in metadata", {"input": "x", "metadata": {"a": "x" * 513}}, "metadata"),
    ("a long key in metadata", {"input": "x", "metadata": {"x" * 65: "a"}}, "metadata"),
    ("much metadata", {"input": "x", "metadata": {str(n): "a" for n in range(17)}}, "metadata"),
    ("a number in include", {"input": "x", "include": [5]}, "include[0]"),
    ("a number in stop", {"input": "x", "stop": [5]}, "stop[0]"),
    ("a number in requirements", {"input": "x", "requirements": [5]}, "requirements[0]"),
    (
        "a template",
        {"input": "x", "chat_template_kwargs": {"chat_template": "x"}},
        "chat_template_kwargs.chat_template",
    ),
    (
        "a chain and a conversation",
        {"input": "x", "previous_response_id": "resp_1", "conversation": "conv_1"},
        "previous_response_id",
    ),
]
BROKEN_SCHEMAS: dict[str, Any] = {
    "a property that is a text": {"type": "object", "properties": {"a": "oops"}},
    "an unknown type": {"type": "thing"},
    "an open bracket": {"type": "string", "pattern": "([a-z"},
    "nothing to repeat": {"type": "string", "pattern": "^+x"},
    "a reference to nothing": {"$ref": "#/$defs/Ghost"},
    "required that is a text": {"type": "object", "required": "a"},
    "a negative length": {"type": "string", "minLength": -1},
}


@pytest.mark.parametrize(("body", "param"), [pytest.param(body, param, id=name) for name, body, param in INSIDE])
async def test_what_is_wrong_inside_a_field_is_refused_by_its_path(url: str, body: Json, param: str) -> None:
    answer = await post(url, body)

    refused(answer)
    place = answer.error["param"]
    assert place.startswith(param)
    assert place.removeprefix(param)[:1] in {"", ".", "["}


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("name", BROKEN_SCHEMAS)
async def test_a_schema_that_cannot_be_obeyed_is_refused_before_anything_is_made(
    url: str, name: str, stream: bool
) -> None:
    answer = await post(url, {**schema(name="n", schema=BROKEN_SCHEMAS[name]), "stream": stream})

    refused(answer)
    assert answer.error["param"].startswith("text.format.schema")


@pytest.mark.parametrize("body", [body for _, body, _ in INSIDE[:20]], ids=[name for name, _, _ in INSIDE[:20]])
async def test_a_bad_request_is_refused_the_same_when_it_asks_for_a_stream(url: str, body: Json) -> None:
    plain, streamed = await post(url, body), await post(url, {**body, "stream": True})

    assert streamed.status == plain.status
    assert streamed.error == plain.error


# ---------------------------------------------------------------- what is odd but fine

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "x"}
FINE: dict[str, Json] = {
    "an empty text": {"input": ""},
    "an empty message": item(role="user", content=""),
    "an empty part": part(type="input_text", text=""),
    "an empty instruction": {"input": "x", "instructions": ""},
    "an assistant with null content and calls": {
        "input": [USER, {"role": "assistant", "content": None}, CALL, OUTPUT, USER],
    },
    "reasoning with null content": {"input": [USER, {"type": "reasoning", "summary": [], "content": None}, USER]},
    "a call without an output": {"input": [USER, CALL, USER]},
    "an output before other words": {"input": [USER, CALL, USER, OUTPUT]},
    "unknown keys everywhere": {
        "input": [{**USER, "surprise": 1, "content": [{"type": "input_text", "text": "x", "more": {}}]}],
        "surprise": {"deep": [1]},
        "tools": [{**FUNCTION, "more": 1}],
        "text": {"more": 1},
        "reasoning": {"more": 1},
    },
    "an unknown include": {"input": "x", "include": ["reasoning.encrypted_content", "no.such.thing"]},
    "auto without tools": {"input": "x", "tool_choice": "auto", "tools": []},
    "none without tools": {"input": "x", "tool_choice": "none"},
    "an empty object for each": {"input": "x", "text": {}, "reasoning": {}, "metadata": {}, "stream_options": {}},
    "a chat-shaped tool": {"input": "x", "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
    "the least of everything": {"input": "x", "max_output_tokens": 1, "temperature": 0, "top_p": 0, "top_logprobs": 0},
    "whole numbers for numbers": {"input": "x", "temperature": 1, "top_p": 1, "presence_penalty": 2},
    "more tokens than there are": {"input": "x", "max_output_tokens": 10**9},
    "signs": {"input": '🌊\u2028\u0000\\" </script> {{x}} {% y %}'},
    "ids of another server": {"input": [{**USER, "id": "msg_" + "f" * 60, "status": "completed"}]},
}


@pytest.mark.parametrize("name", FINE)
async def test_what_real_clients_send_is_taken(url: str, name: str) -> None:
    answer = await post(url, {"model": "m", **FINE[name]})
    HEARD.clear()

    assert answer.status == 200, answer.body
    oracle.check_response(answer.json)


async def test_a_message_about_many_mistakes_stays_small(url: str) -> None:
    wrong = {"type": "input_text", "text": 7, "secret": "do not repeat"}
    answer = await post(url, item(role="user", content=[wrong] * 3000))

    refused(answer, "input[0].content[0].text")
    assert b"do not repeat" not in answer.body


@pytest.mark.parametrize("value", ["x" * 100_000, {"a" * 100_000: 1}, ["b" * 100_000]], ids=["text", "key", "list"])
async def test_a_huge_wrong_value_is_not_sent_back(url: str, value: Any) -> None:
    for body in ({"input": [{"type": value}]}, {"input": "x", "tool_choice": value}, {"input": [value]}):
        answer = await sent(url, json.dumps(body).encode())
        assert answer.status == 400
        assert len(answer.body) < 4096


async def test_a_string_over_the_limit_of_the_specification_is_refused_as_too_large(url: str) -> None:
    for body in ({"input": "x" * 10_485_761}, item(role="user", content="x" * 10_485_761)):
        answer = await post(url, body)

        assert answer.status == 413
        assert answer.error["code"] == "string_above_max_length"
        assert answer.error["param"].startswith("input")
