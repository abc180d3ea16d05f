"""Which routes there are, and what every route says when something is wrong."""

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from zstandard import ZstdCompressor

from support import oracle
from support.raw import Request, ask, get, post, posting
from support.serving import serving
from support.stand_in import Json


def serve(input: Any) -> str:
    return "x"


BODY: Json = {"model": "local", "input": "Hello"}


@pytest.mark.parametrize("root", ["/v1", ""])
async def test_every_route_is_there_with_and_without_the_version(root: str) -> None:
    async with serving(serve) as url:
        answer = await post(url, BODY, f"{root}/responses")
        path = f"{root}/responses/{answer.json['id']}"
        others = [await get(url, path), await get(url, f"{path}/input_items"), await get(url, f"{root}/models")]
        others.append(await ask(url, Request("DELETE", path)))

    assert [answer.status, *(one.status for one in others)] == [200] * 5


async def test_health_and_readiness_answer() -> None:
    async with serving(serve) as url:
        health, ready = await get(url, "/health"), await get(url, "/ready")

    assert [health.status, ready.status] == [200, 200]
    assert health.headers["content-type"].split(";")[0] == "application/json"


async def test_the_served_models_are_listed_and_can_be_looked_up() -> None:
    async with serving(serve, model_names=("small", "org/large")) as url:
        listed = await get(url, "/v1/models")
        found = [await get(url, "/v1/models/small"), await get(url, "/v1/models/org/large")]
        missing = await get(url, "/v1/models/ghost")

    assert listed.json["object"] == "list"
    assert [model["id"] for model in listed.json["data"]] == ["small", "org/large"]
    assert [one.json for one in found] == listed.json["data"]
    assert listed.json["data"][0]["object"] == "model"
    assert missing.status == 404
    assert missing.error["code"] == "model_not_found"


async def test_any_model_name_is_accepted_until_the_owner_lists_names() -> None:
    async with serving(serve) as url:
        anything = await post(url, {"model": "gpt-99", "input": "x"})
        nothing = await post(url, {"input": "x"})
        null = await post(url, {"model": None, "input": "x"})
    async with serving(serve, model_names=("small",)) as url:
        other = await post(url, {"model": "gpt-99", "input": "x"})
        left_out = await post(url, {"input": "x"})

    assert [one.status for one in (anything, nothing, null, left_out)] == [200] * 4
    assert left_out.json["model"] == "small"
    assert (other.status, other.error["code"], other.error["param"]) == (404, "model_not_found", "model")


async def test_the_api_describes_itself_by_its_own_types() -> None:
    async with serving(serve) as url:
        answer = await get(url, "/openapi.json")

    document = answer.json
    assert document["openapi"].startswith("3.")
    paths = {path.removeprefix("/v1") for path in document["paths"]}
    assert {"/responses", "/responses/{response_id}", "/responses/{response_id}/input_items", "/models"} <= paths
    assert "CreateResponse" in " ".join(document["components"]["schemas"])


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "route_not_found"),
        ("GET", "/v1", 404, "route_not_found"),
        ("GET", "/v1/nope", 404, "route_not_found"),
        ("POST", "/v1/responses/nope/nope", 404, "route_not_found"),
        ("GET", "/v2/responses", 404, "route_not_found"),
        ("GET", "/schema", 404, "route_not_found"),
        ("GET", "/docs", 404, "route_not_found"),
        ("GET", "/v1/responses/..%2f..%2fetc%2fhostname", 404, "route_not_found"),
        ("GET", "/v1/responses/../../etc/hostname", 404, "route_not_found"),
        ("GET", "/v1/responses", 405, "method_not_allowed"),
        ("PUT", "/v1/responses", 405, "method_not_allowed"),
        ("PATCH", "/v1/responses/resp_1", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("DELETE", "/health", 405, "method_not_allowed"),
    ],
)
async def test_what_is_not_there_is_said_in_the_shape_of_errors(method: str, path: str, status: int, code: str) -> None:
    async with serving(serve) as url:
        answer = await ask(url, Request(method, path))

    assert answer.status == status
    oracle.check_error(answer.json)
    assert answer.error["code"] == code
    if status == 405:
        assert answer.headers["allow"]


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/json;charset=UTF-8",
    ],
)
async def test_json_may_be_named_in_every_usual_way(content_type: str) -> None:
    async with serving(serve) as url:
        answer = await ask(url, Request("POST", "/v1/responses", b'{"input":"x"}', {"content-type": content_type}))

    assert answer.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/jsonp"},
        {"content-type": "application/json", "content-encoding": "br"},
        {"content-type": "application/json", "content-encoding": "gzip, gzip"},
    ],
    ids=str,
)
async def test_a_body_that_is_not_plain_json_is_refused_whatever_stands_in_it(headers: dict[str, str]) -> None:
    async with serving(serve) as url:
        answer = await ask(url, Request("POST", "/v1/responses", b'{"input":"x"}', headers))

    assert answer.status == 415
    oracle.check_error(answer.json)
    assert answer.error["code"] == "unsupported_media_type"


def deflated(body: bytes) -> bytes:
    return zlib.compress(body)


def zstandard(body: bytes) -> bytes:
    return ZstdCompressor().compress(body)


SQUEEZED: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": deflated, "zstd": zstandard}


@pytest.mark.parametrize("encoding", SQUEEZED)
async def test_a_squeezed_body_is_read_and_measured_by_what_it_becomes(encoding: str) -> None:
    headers = {"content-type": "application/json", "content-encoding": encoding}
    small = SQUEEZED[encoding](b'{"input":"x"}')
    bomb = SQUEEZED[encoding](b'{"input":"' + b"x" * 2_000_000 + b'"}')
    async with serving(serve, max_body_bytes=1_000_000) as url:
        read = await ask(url, Request("POST", "/v1/responses", small, headers))
        refused = await ask(url, Request("POST", "/v1/responses", bomb, headers))
        broken = [await ask(url, Request("POST", "/v1/responses", body, headers)) for body in (b"{}", b"", b"\0")]

    assert read.status == 200
    assert (refused.status, refused.error["code"]) == (413, "content_too_large")
    for answer in broken:
        assert (answer.status, answer.error["code"]) == (400, "invalid_encoding")
        oracle.check_error(answer.json)


@pytest.mark.parametrize("encoding", SQUEEZED)
async def test_a_squeezed_body_that_is_cut_anywhere_is_told_so(encoding: str) -> None:
    """Also where what is left of it would be whole JSON."""
    headers = {"content-type": "application/json", "content-encoding": encoding}
    squeezed = SQUEEZED[encoding](b'{"input":"x"}' + b" " * 300_000)
    async with serving(serve) as url:
        cut = [
            await ask(url, Request("POST", "/v1/responses", squeezed[:size], headers))
            for size in range(1, len(squeezed), max(1, len(squeezed) // 20))
        ]

    assert {(answer.status, answer.error["code"]) for answer in cut} == {(400, "invalid_encoding")}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/conversations"])
async def test_a_mark_before_the_json_is_passed_over(path: str) -> None:
    content = b'\xef\xbb\xbf{"input":"x","messages":[{"role":"user","content":"x"}]}'
    async with serving(serve) as url:
        answer = await ask(url, Request("POST", path, content, {"content-type": "application/json"}))
        twice = await ask(url, Request("POST", path, b"\xef\xbb\xbf" + content, {"content-type": "application/json"}))

    assert answer.status == 200
    assert (twice.status, twice.error["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("told", [True, False], ids=["its length is told", "it comes in chunks"])
async def test_a_body_over_the_limit_is_refused(told: bool) -> None:
    content = b'{"input":"' + b"x" * 20_000 + b'"}'
    headers = {"content-type": "application/json"}
    if not told:
        headers |= {"transfer-encoding": "chunked"}
        content = b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
    async with serving(serve, max_body_bytes=10_000) as url:
        request = Request("POST", "/v1/responses", content, headers)
        refused = await ask(url, request)
        after = await post(url, BODY)

    assert refused.status == 413
    oracle.check_error(refused.json)
    assert refused.error["code"] == "content_too_large"
    assert after.status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "192.0.2.1"])
async def test_a_foreign_host_on_loopback_is_refused(host: str) -> None:
    async with serving(serve) as url:
        answer = await ask(url, posting(BODY, host=host))

    assert answer.status == 403
    oracle.check_error(answer.json)


@pytest.mark.parametrize("host", ["localhost", "LocalHost", "localhost:1234", "127.0.0.1", "[::1]:8080"])
async def test_the_names_of_this_machine_are_fine(host: str) -> None:
    async with serving(serve) as url:
        assert (await ask(url, posting(BODY, host=host))).status == 200


async def test_every_answer_has_a_request_id_and_errors_tell_it_apart() -> None:
    async with serving(serve) as url:
        answers = [await post(url, BODY), await post(url, {**BODY, "stream": True}), await post(url, {})]
        answers += [await get(url, "/nope"), await get(url, "/v1/responses/resp_nope")]

    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == 5


async def test_a_page_of_another_origin_gets_no_permission() -> None:
    async with serving(serve) as url:
        answer = await ask(url, posting(BODY, origin="https://evil.example"))

    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_hosted_tools_that_nobody_here_can_run_are_left_out_and_named() -> None:
    tools = [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}, {"type": "function", "name": "f"}]
    async with serving(serve) as url:
        answer = await post(url, {**BODY, "tools": tools})
        streamed = await post(url, {**BODY, "tools": tools, "stream": True})
        forced = await post(url, {**BODY, "tools": tools, "tool_choice": {"type": "web_search"}})
    async with serving(serve, unsupported_tools="reject") as url:
        refused = await post(url, {**BODY, "tools": tools})

    for one in (answer, streamed):
        assert one.headers["x-mellea-unsupported-tools"] == "web_search, mcp"
        assert [tool["name"] for tool in one.response["tools"]] == ["f"]
    assert forced.status == 400
    assert (refused.status, refused.error["param"]) == (400, "tools[0].type")


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models"])
async def test_head_gives_what_get_gives_but_the_body(path: str) -> None:
    async with serving(serve) as url:
        whole = await ask(url, Request("GET", path))
        async with httpx2.AsyncClient() as client:
            head = await client.head(url + path)

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(whole.body))
    assert head.headers["content-type"] == whole.headers["content-type"]


@pytest.mark.parametrize("host", ["host.docker.internal:8080", "HOST.containers.internal"])
async def test_containers_of_this_machine_may_call_it_by_their_name_for_it(host: str) -> None:
    async with serving(serve) as url:
        assert (await ask(url, Request("GET", "/v1/models", headers={"host": host}))).status == 200
