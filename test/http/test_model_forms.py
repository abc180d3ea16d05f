"""What a served model is held to, through a real server: the client asked for a form or a call, and gets one."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from engine.tiny import CHATML, Readable, make_network, make_tokenizer
from jsonschema_rs import validator_for

from mellea_responses.engine.engine import Engine
from mellea_responses.program.builtin import ModelProgram
from support.raw import Answer, ask, posting
from support.serving import serving

Json = dict[str, Any]

FORM: Json = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "b"]}, "sizes": {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 3}},
    "required": ["kind", "sizes"],
    "additionalProperties": False,
}
TOOLS: list[Json] = [
    {"type": "function", "name": "add", "parameters": FORM, "strict": True},
    {"type": "namespace", "name": "sea", "tools": [{"type": "function", "name": "tide", "parameters": {**FORM}}]},
    {"type": "custom", "name": "note"},
]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    engine = Engine(Readable(make_network(4096), make_tokenizer(CHATML), "tiny"), chunk=2048)
    engine.ready()
    try:
        async with serving(ModelProgram(engine)) as url:
            yield url
    finally:
        engine.close()


async def respond(url: str, **body: Any) -> Answer:
    answer = await ask(url, posting({"model": "m", "input": "hello", "temperature": 0, **body}))
    assert answer.status == 200, answer.body
    return answer


def asked(**more: Any) -> Json:
    return {"text": {"format": {"type": "json_schema", "name": "f", "schema": FORM, **more}}}


@pytest.mark.parametrize("strict", [True, False, None])
async def test_an_answer_in_a_form_fits_streamed_or_not(url: str, strict: bool | None) -> None:
    plain = (await respond(url, **asked(strict=strict))).json
    events = (await respond(url, stream=True, **asked(strict=strict))).events

    text = plain["output"][0]["content"][0]["text"]
    assert plain["status"] == "completed"
    assert validator_for(FORM).is_valid(json.loads(text))
    assert "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta") == text


async def test_a_chat_gets_its_form_too(url: str) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "f", "schema": FORM, "strict": True}}
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "response_format": form}

    answer = await ask(url, posting(body, "/v1/chat/completions"))

    assert validator_for(FORM).is_valid(json.loads(answer.json["choices"][0]["message"]["content"]))


@pytest.mark.parametrize(("choice", "name", "namespace"), [
    ({"type": "function", "name": "add"}, "add", None),
    ({"type": "function", "name": "tide"}, "tide", "sea"),
    ({"type": "namespace", "name": "sea"}, "tide", "sea"),
    ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}, "add", None),
])  # fmt: skip
async def test_the_tool_that_was_chosen_is_called_with_arguments_that_fit(
    url: str, choice: Json, name: str, namespace: str | None
) -> None:
    body = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False}

    [call] = (await respond(url, **body)).json["output"]

    assert (call["type"], call["name"], call.get("namespace")) == ("function_call", name, namespace)
    assert validator_for(FORM).is_valid(json.loads(call["arguments"]))


async def test_a_custom_tool_gets_its_text(url: str) -> None:
    body = {"tools": TOOLS, "tool_choice": {"type": "custom", "name": "note"}, "max_output_tokens": 2000}

    response = (await respond(url, **{**body, "temperature": 1, "seed": 1})).json

    [call] = response["output"]
    assert (call["type"], call["name"]) == ("custom_tool_call", "note")
    if response["status"] == "completed":
        assert not call["input"].startswith('{"input"')


async def test_some_tool_is_called_where_one_must_be(url: str) -> None:
    output = (await respond(url, tools=TOOLS[:2], tool_choice="required", parallel_tool_calls=False)).json["output"]

    assert [item["type"] for item in output] == ["function_call"]
    assert output[0]["name"] in ("add", "tide")


async def test_the_loop_goes_on_after_a_call_that_was_demanded(url: str) -> None:
    first = (await respond(url, tools=TOOLS, tool_choice={"type": "function", "name": "add"})).json
    results = [{"type": "function_call_output", "call_id": item["call_id"], "output": "3"} for item in first["output"]]

    second = (await respond(url, previous_response_id=first["id"], input=results, **asked(strict=True))).json

    assert validator_for(FORM).is_valid(json.loads(second["output"][0]["content"][0]["text"]))


async def test_an_answer_that_its_limit_cuts_is_incomplete(url: str) -> None:
    answer = (await respond(url, max_output_tokens=4, **asked(strict=True))).json

    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
