"""The document at `/openapi.json`: whole, valid, and true of what the server takes and sends."""

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from jsonschema import Draft202012Validator
from litestar.routes import HTTPRoute

from mellea_responses.http.openapi import document
from mellea_responses.turn import (
    Annotation,
    Call,
    CallArgs,
    CallEnd,
    ItemDone,
    ItemOpen,
    Refusal,
    Stop,
    Text,
    Thought,
    Turn,
    Usage,
)
from mellea_responses.wire import items
from mellea_responses.wire.events import Event
from support.raw import Answer, Request, ask, get, post
from support.serving import build_app, serving
from support.stand_in import Json

FIXTURES = Path(__file__).parents[1] / "clients" / "data"


@cache
def described() -> Json:
    made: Json = json.loads(document())
    return made


@cache
def closed() -> Json:
    """The document with no room for keys that it does not name, except in what comes from elsewhere."""
    made = deepcopy(described())
    for name, schema in made["components"]["schemas"].items():
        if "properties" in schema and name != "Receipt":
            schema.setdefault("additionalProperties", False)
    return made


def complaints(value: Any, schema: Json, *, strict: bool = False) -> list[str]:
    """What is wrong with `value`, by a schema that may point into the document's components."""
    components = (closed() if strict else described())["components"]
    validator = Draft202012Validator({**schema, "components": components})
    return [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(value)]


def component(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def operations() -> Iterator[tuple[str, str, Json]]:
    """Every operation with its method and each path it has, by the servers that hold for it."""
    for path, entry in described()["paths"].items():
        for server in entry.get("servers", described()["servers"]):
            for method in entry.keys() & {"get", "post", "put", "patch", "delete"}:
                yield method.upper(), server["url"].rstrip("/") + path, entry[method]


def schema_of(operation: Json, status: str, media: str = "application/json") -> Json:
    answer: Json = operation["responses"][status]
    if "$ref" in answer:
        answer = described()["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    schema: Json = answer["content"][media]["schema"]
    return schema


# ---------------------------------------------------------------- the document as such


def test_the_document_is_valid_openapi() -> None:
    schemathesis.openapi.from_dict(deepcopy(described())).validate()


def test_every_component_is_a_json_schema_and_no_reference_leads_nowhere() -> None:
    components = described()["components"]
    for schema in components["schemas"].values():
        Draft202012Validator.check_schema(schema)

    for reference in references(described()):
        kind, name = reference.removeprefix("#/components/").split("/")
        assert name in components[kind], reference


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        yield from node.get("discriminator", {}).get("mapping", {}).values()
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_no_two_operations_share_an_id_and_every_path_names_its_parameters() -> None:
    entries = described()["paths"]
    ids = [entry[method]["operationId"] for entry in entries.values() for method in entry if method in ("get", "post")]

    assert len(set(ids)) == len(ids)
    for path, entry in entries.items():
        named = {parameter["name"] for parameter in entry.get("parameters", [])}
        assert named == {piece[1:-1] for piece in path.split("/") if piece.startswith("{")}


def test_every_route_is_described_and_every_description_has_its_route() -> None:
    routes = {
        (method, "/".join(piece.partition(":")[0] + "}" if ":" in piece else piece for piece in route.path.split("/")))
        for route in build_app(lambda input: "x").routes
        if isinstance(route, HTTPRoute)
        for method in route.methods - {"OPTIONS", "HEAD"}
    }

    assert {(method, path) for method, path, _ in operations()} == routes


def test_every_event_and_item_has_its_place_in_its_union() -> None:
    schemas = described()["components"]["schemas"]
    events = {kind.__struct_config__.tag for kind in Event.__args__}
    kept = {kind.__struct_config__.tag for kind in items.TypedItem.__args__}

    assert schemas["Event"]["discriminator"]["mapping"].keys() == events
    assert schemas["Item"]["discriminator"]["mapping"].keys() == kept | items.RECEIPTS
    assert set(schemas["ServerSentEvent"]["properties"]["event"]["enum"]) == events


async def test_the_document_is_made_once_and_served_as_it_was_made() -> None:
    async with serving(lambda input: "x") as url:
        first, second = await get(url, "/openapi.json"), await get(url, "/openapi.json")

    assert document() is document()
    assert (first.status, first.headers["content-type"]) == (200, "application/json")
    assert first.body == second.body == document()


# ---------------------------------------------------------------- what the server sends


RECEIPT = {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}}
TOOLS: list[Json] = [
    {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": None, "defer_loading": True},
    {"type": "custom", "name": "write", "format": {"type": "text"}},
    {"type": "namespace", "name": "far", "description": "", "tools": [{"type": "function", "name": "echo"}]},
    {"type": "tool_search", "execution": "client", "description": "More.", "parameters": {"type": "object"}},
    {"type": "web_search"},
]


def everything(input: Any, turn: Turn) -> Iterator[Any]:
    """Says every kind of thing that a program can say, if the tools for it are there."""
    yield Thought("Hm.")
    yield Text("Well", phase="commentary")
    yield Text("It is so.", logprobs=())
    yield Annotation("https://example.test", "Source", 0, 5)
    yield Refusal("No more.")
    if turn.tools:
        yield ItemOpen({**RECEIPT, "status": "in_progress"})
        yield ItemDone(RECEIPT)
        for key, name, kind, text in (
            ("a", "look", "function", '{"x":1}'),
            ("b", "write", "custom", "free"),
            ("c", "far.echo", "function", ""),
            ("d", "tool_search", "tool_search", '{"query":"x"}'),
        ):
            yield Call(key, name, kind=kind)  # type: ignore[arg-type]  # the literals above
            yield CallArgs(key, text)
            yield CallEnd(key)
    yield Usage(10, 5, cached_tokens=2, reasoning_tokens=1)
    yield Stop("length" if turn.options.max_output_tokens == 1 else "stop")


INPUT: list[Json] = [
    {"role": "system", "content": "Be good"},
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No"}], "phase": "commentary"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}], "content": "Hmm"},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "seen"}]},
    {"type": "custom_tool_call", "call_id": "c2", "name": "write", "input": "x", "namespace": "far"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
    {"type": "tool_search_call", "call_id": "c3", "arguments": {"query": "x"}},
    {"type": "tool_search_output", "call_id": "c3", "tools": [{"type": "function", "name": "found"}]},
    {"type": "additional_tools", "tools": [{"type": "function", "name": "added"}]},
    {"type": "shell_call", "call_id": "c4", "action": {"commands": ["ls"]}},
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}, "Go"]},
]
BODIES: list[Json] = [
    {"input": "x"},
    {"input": INPUT, "tools": TOOLS, "metadata": {"a": "b"}, "instructions": "Short."},
    {"input": INPUT, "tools": TOOLS, "reasoning": {"summary": "auto", "effort": "low"}},
    {"input": "x", "max_output_tokens": 1, "text": {"format": {"type": "json_object"}, "verbosity": "low"}},
    {
        "input": "x",
        "tools": TOOLS,
        "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "look"}]},
    },
    {
        "input": "x",
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        "service_tier": "auto",
    },
]


def true_of(answer: Answer, schema: Json) -> None:
    assert not complaints(answer.json, schema, strict=True)


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_answers_streams_and_stored_forms_are_as_described(body: Json) -> None:
    async with serving(everything) as url:
        made = await post(url, body)
        streamed = await post(url, {**body, "stream": True})
        path = f"/v1/responses/{streamed.response['id']}"
        again = await get(url, f"{path}?stream=true")
        pages = [await get(url, f"{path}/input_items?limit=100"), await get(url, f"{path}/input_items?limit=1")]
        stored = await get(url, path)
        deleted = await ask(url, Request("DELETE", path))

    true_of(made, component("Response" if made.status == 200 else "ErrorAnswer"))
    assert streamed.events
    for frame in (*streamed.frames, *again.frames):
        sent = {name: getattr(frame, name) for name in frame.names}
        assert not complaints(sent, component("ServerSentEvent"))
        if frame.is_event:
            assert not complaints(frame.json, component("Event"), strict=True)
    true_of(stored, component("Response"))
    for page in pages:
        true_of(page, component("ItemList"))
    true_of(deleted, component("DeletedResponse"))


async def test_conversations_are_as_described() -> None:
    items = [item for item in INPUT if "output" not in item.get("type", "")]
    async with serving(everything) as url:
        made = await post(url, {"items": items, "metadata": {"a": "b"}}, "/v1/conversations")
        path = f"/v1/conversations/{made.json['id']}"
        changed = await post(url, {"metadata": {}}, path)
        added = await post(url, {"items": [{"role": "user", "content": "More."}]}, f"{path}/items")
        listed = await get(url, f"{path}/items?limit=100")
        one = f"{path}/items/{listed.json['first_id']}"
        item, left = await get(url, one), await ask(url, Request("DELETE", one))
        found, gone = await get(url, path), await ask(url, Request("DELETE", path))
        missing = await get(url, path)

    assert [answer.status for answer in (made, changed, added, listed, item, left, found, gone)] == [200] * 8
    for answer in (made, changed, left, found):
        true_of(answer, component("ConversationBody"))
    true_of(added, component("ItemPage"))
    true_of(listed, component("ItemList"))
    true_of(item, component("Item"))
    true_of(gone, component("DeletedConversation"))
    true_of(missing, component("ErrorAnswer"))


async def test_a_background_response_is_as_described() -> None:
    async with serving(everything) as url:
        made = await post(url, {"input": "x", "background": True})
        ended = await post(url, {}, f"/v1/responses/{made.json['id']}/cancel")

    assert [made.status, ended.status] == [200, 200]
    true_of(made, component("Response"))
    true_of(ended, component("Response"))


async def test_the_small_routes_answer_as_described() -> None:
    by_path = {(method, path): operation for method, path, operation in operations()}
    async with serving(everything, model_names=("small", "org/large")) as url:
        for asked, described_as in {
            "/v1/models": "/v1/models",
            "/models/org/large": "/models/{model}",
            "/health": "/health",
            "/ready": "/ready",
        }.items():
            answer = await get(url, asked)
            assert answer.status == 200
            true_of(answer, schema_of(by_path["GET", described_as], "200"))


@pytest.mark.parametrize(
    ("request_", "described_as", "status"),
    [
        (Request("POST", "/v1/responses", b"{", {"content-type": "application/json"}), "/v1/responses", 400),
        (Request("POST", "/v1/responses", b"{}", {"content-type": "text/plain"}), "/v1/responses", 415),
        (Request("POST", "/responses", b"x" * 5000, {"content-type": "application/json"}), "/responses", 413),
        (
            Request("POST", "/v1/responses", b'{"input":"x","model":"y"}', {"content-type": "application/json"}),
            "/v1/responses",
            404,
        ),
        (Request("GET", "/v1/responses/resp_nope"), "/v1/responses/{response_id}", 404),
        (Request("GET", "/v1/responses/resp_nope?stream=maybe"), "/v1/responses/{response_id}", 400),
        (Request("DELETE", "/v1/responses/resp_nope"), "/v1/responses/{response_id}", 404),
        (
            Request("GET", "/v1/responses/resp_nope/input_items?limit=101"),
            "/v1/responses/{response_id}/input_items",
            400,
        ),
        (Request("GET", "/v1/models/nope"), "/v1/models/{model}", 404),
        (Request("GET", "/v1/models", headers={"host": "evil.example"}), "/v1/models", 403),
        (Request("POST", "/v1/responses/resp_nope/cancel"), "/v1/responses/{response_id}/cancel", 404),
        (Request("GET", "/v1/conversations/conv_nope"), "/v1/conversations/{conversation_id}", 404),
    ],
    ids=lambda value: f"{value.method} {value.path}" if isinstance(value, Request) else "",
)
async def test_failures_are_described_where_they_happen(request_: Request, described_as: str, status: int) -> None:
    by_path = {(method, path): operation for method, path, operation in operations()}
    async with serving(everything, model_names=("small",), max_body_bytes=4000) as url:
        answer = await ask(url, request_)

    assert answer.status == status
    true_of(answer, schema_of(by_path[request_.method, described_as], str(status)))


async def test_a_missing_key_is_refused_as_described() -> None:
    by_path = {(method, path): operation for method, path, operation in operations()}
    async with serving(everything, api_keys=("secret-key-of-one",)) as url:
        refused = await get(url, "/v1/models")
        health = await get(url, "/health")

    assert [refused.status, health.status] == [401, 200]
    true_of(refused, schema_of(by_path["GET", "/v1/models"], "401"))


async def test_a_failing_program_answers_as_described() -> None:
    def fails(input: Any) -> str:
        raise RuntimeError("no")

    async with serving(fails) as url:
        answer = await post(url, {"input": "x"})
        streamed = await post(url, {"input": "x", "stream": True})

    assert answer.status == 500
    true_of(answer, component("ErrorAnswer"))
    for event in streamed.events:
        assert not complaints(event, component("Event"), strict=True)


# ---------------------------------------------------------------- what the server takes


def bodies() -> Iterator[Any]:
    for path in sorted(FIXTURES.glob("*/*.json")):
        fixture = json.loads(path.read_bytes())
        schema = {"/v1/responses": "CreateResponse", "/v1/conversations/conv_0001/items": "CreateItems"}
        if fixture.get("path") in schema and "body" in fixture:
            yield pytest.param(fixture["body"], schema[fixture["path"]], id=f"{path.parent.name}/{path.stem}")


@pytest.mark.parametrize(("body", "schema"), list(bodies()))
def test_what_clients_send_is_described(body: Json, schema: str) -> None:
    assert not complaints(body, component(schema))


SPELLINGS: list[tuple[Any, bool]] = [
    ("x", True),
    ("", True),
    (None, False),
    (5, False),
    ([{"role": "user", "content": "x"}], True),
    ([{"type": None, "role": "user", "content": "x"}], True),
    ([{"role": "boss", "content": "x"}], False),
    ([{"type": "nope", "role": "user", "content": "x"}], False),
    ([{"role": "user", "content": ["bare", {"text": "untyped"}, {"type": "input_text", "text": "typed"}]}], True),
    ([{"role": "user", "content": [{"type": "nope", "text": "x"}]}], False),
    ([{"role": "user", "content": [{"type": "input_text"}]}], False),
    (["x"], False),
    ([None], False),
    ([{}], False),
    ([{"call_id": "c", "name": "f"}], True),
    ([{"call_id": "c", "name": "f"}, {"call_id": "c", "output": "x"}], True),
    ([{"call_id": "c"}], False),
    ([{"type": "function_call", "name": "f"}], False),
    ([{"type": "function_call", "call_id": "", "name": "f"}], False),
    ([{"type": "function_call", "call_id": "c", "name": "f", "arguments": {"x": 1}}], True),
    ([{"type": "function_call", "call_id": "c", "name": "f", "arguments": ["x"]}], False),
    ([{"type": "web_search_call", "whatever": 1}], True),
    ([{"type": "web_search_call", "id": None, "call_id": None}], True),
    ([{"type": "web_search_call", "call_id": 0.5}], False),
    ([{"type": "web_search_call", "id": {}}], False),
    ([{"type": {"type": "message"}, "role": "user", "content": "x"}], False),
    ([{"type": "input_text", "text": "bare part"}], True),
    ([{"type": "reasoning", "content": None, "summary": []}, {"role": "user", "content": "x"}], True),
]


async def test_the_server_and_the_document_agree_on_input() -> None:
    async with serving(lambda input: "x") as url:
        for value, fine in SPELLINGS:
            answer = await post(url, {"input": value})

            assert bool(complaints({"input": value}, component("CreateResponse"))) is not fine, value
            assert answer.status == (200 if fine else 400), (value, answer.body)


FIELDS: list[tuple[Json, bool]] = [
    ({"temperature": 2}, True),
    ({"temperature": 2.01}, False),
    ({"temperature": "0.5"}, False),
    ({"top_p": 0}, True),
    ({"top_p": 1.5}, False),
    ({"top_logprobs": 20}, True),
    ({"top_logprobs": 21}, False),
    ({"max_output_tokens": 1}, True),
    ({"max_output_tokens": 0}, False),
    ({"presence_penalty": -2}, True),
    ({"presence_penalty": -2.1}, False),
    ({"truncation": "auto"}, True),
    ({"truncation": "never"}, False),
    ({"metadata": {str(i): "x" for i in range(16)}}, True),
    ({"metadata": {str(i): "x" for i in range(17)}}, False),
    ({"metadata": {"a": 1}}, False),
    ({"metadata": {"a": "x" * 513}}, False),
    ({"stream": None, "tools": None, "text": None, "store": None}, True),
    ({"stream": "yes"}, False),
    ({"tools": [{"type": "function", "name": "f"}]}, True),
    ({"tools": [{"type": "function", "name": "a b"}]}, False),
    ({"tools": [{"name": "f", "parameters": {"type": "object"}}]}, True),
    ({"tools": [{"function": {"name": "f"}}]}, True),
    ({"tools": [{"name": "f"}]}, False),
    ({"tools": [{"type": "web_search", "anything": [1]}]}, True),
    ({"tools": [{"type": ""}]}, False),
    ({"tools": ["f"]}, False),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}]}, True),
    ({"tools": [{"type": "namespace", "name": "n"}]}, False),
    ({"tool_choice": "none"}, True),
    ({"tool_choice": "maybe"}, False),
    ({"text": {"format": {"type": "text"}}}, True),
    ({"text": {"format": {"type": "yaml"}}}, False),
    ({"reasoning": {"effort": "low"}}, True),
    ({"reasoning": {"effort": "huge"}}, False),
    ({"unknown": {"field": 1}}, True),
]


async def test_a_request_that_continues_something_needs_no_input() -> None:
    async with serving(lambda input: "x") as url:
        first = await post(url, {"input": "x"})
        conversation = await post(url, {"items": [{"role": "user", "content": "x"}]}, "/v1/conversations")
        for past in ({"previous_response_id": first.json["id"]}, {"conversation": conversation.json["id"]}):
            answers = [await post(url, {**past, **body}) for body in ({}, {"input": None}, {"input": []})]

            assert [answer.status for answer in answers] == [200, 200, 200]
            assert not complaints(past, component("CreateResponse"))


async def test_the_server_and_the_document_agree_on_fields() -> None:
    async with serving(lambda input: "x") as url:
        for fields, fine in FIELDS:
            answer = await post(url, {"input": "x", **fields})

            assert answer.status == (200 if fine else 400), (fields, answer.body)
            assert bool(complaints({"input": "x", **fields}, component("CreateResponse"))) is not fine, fields


def test_every_field_of_a_request_is_described() -> None:
    from mellea_responses.wire.request import CreateResponse

    described_fields = described()["components"]["schemas"]["CreateResponse"]["properties"]

    assert described_fields.keys() == {field.name for field in msgspec.structs.fields(CreateResponse)}
