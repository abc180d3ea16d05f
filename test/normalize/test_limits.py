"""How much of anything a request may hold, and what it is told beyond."""

import json
from typing import Any

import pytest

from mellea_responses.errors import InvalidRequest
from mellea_responses.normalize.request import normalize
from mellea_responses.wire.decode import decode_create

Json = dict[str, Any]
TOOL: Json = {"type": "function", "name": "f", "parameters": {"type": "object"}}
DEEP: Json = {"a": 1}
for _ in range(200):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": [{"role": "user", "content": "x"}] * 10_001}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": ""}] * 15_000}] * 2}, "input[1]"),
        ({"tools": [{**TOOL, "name": f"f{i}"} for i in range(1025)]}, "tools"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{**TOOL, "name": f"f{i}"} for i in range(1025)]}]},
         "tools"),
        ({"tools": [{**TOOL, "description": "x" * 600_000}]}, "tools[0]"),
        ({"tools": [{**TOOL, "name": f"f{i}", "description": "x" * 500_000} for i in range(20)]}, "tools"),
        ({"tools": [TOOL, {**TOOL, "name": "g", "parameters": DEEP}]}, "tools[1]"),
        ({"tools": [{"type": "custom", "name": "c", "format": DEEP}]}, "tools[0]"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": DEEP}]}, "input[0]"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": DEEP}]}, "input[0]"),
        ({"input": [{"type": "web_search_call", "action": DEEP}]}, "input[0]"),
        ({"input": [{"type": "additional_tools", "tools": [{**TOOL, "parameters": DEEP}]}]}, "input[0]"),
        ({"text": {"format": {"type": "json_schema", "name": "n", "schema": DEEP}}}, "text.format.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": DEEP}}},
         "response_format.json_schema.schema"),
        ({"chat_template_kwargs": DEEP}, "chat_template_kwargs"),
        ({"metadata": {"a": DEEP}}, "metadata[...]"),
        ({"metadata": {f"k{i}": "v" for i in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata[...]"),
        ({"include": ["x"] * 1025}, "include"),
        ({"requirements": ["x"] * 1025}, "requirements"),
        ({"prompt_cache_key": "x" * 1025}, "prompt_cache_key"),
        ({"model": "x" * 1025}, "model"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_too_much_of_anything_is_told_with_its_place(body: Json, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        normalize(decode_create(json.dumps({"input": "hi", **body}).encode()))

    assert refused.value.param == param


def test_what_agents_send_is_far_from_any_limit() -> None:
    parameters = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(40)}}
    tools = [{**TOOL, "name": f"f{i}", "description": "x" * 4000, "parameters": parameters} for i in range(400)]
    output = {"type": "function_call_output", "call_id": "c", "output": "if (a[0]) { b(); }\n" * 500}
    call = {"type": "function_call", "call_id": "c", "name": "f0", "arguments": json.dumps({"a": ["\\" * 50] * 50})}
    body = {"input": [call, output] * 2000, "tools": tools}

    turn = normalize(decode_create(json.dumps(body).encode()))

    assert (len(turn.loose), len(turn.tools)) == (4000, 400)
