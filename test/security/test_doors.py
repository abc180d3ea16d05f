"""Who may knock at all: the right host, no stranger's page, a key on every path, and no way round by spelling.

Sockets by hand: clients and browsers would not send most of this, attackers do.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
import websockets
from litestar.routes import HTTPRoute

from mellea_responses.http.security import OPEN
from mellea_responses.settings import Settings
from mellea_responses.turn import Turn
from support import oracle
from support.raw import Answer, Exchange, Request, ask, posting
from support.serving import build_app, running, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "a-key-of-twenty-eight-letters"
EVIL = "https://evil.example"
NAMED = "https://app.example"
BODY = {"input": "x"}
HEARD: list[Turn] = []


def serve(turn: Turn) -> str:
    HEARD.append(turn)
    return "said"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url() -> AsyncIterator[str]:
    async with serving(serve, metrics=True) as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def locked() -> AsyncIterator[str]:
    async with serving(serve, api_keys=(f"ada={KEY}",), metrics=True) as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def open_to_a_page() -> AsyncIterator[str]:
    async with serving(serve, api_keys=(f"ada={KEY}",), cors_origins=(NAMED,)) as address:
        yield address


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    HEARD.clear()


ROUTES = sorted(
    (method, path.replace("{response_id:str}", "resp_x").replace("{conversation_id:str}", "conv_x"))
    for route in build_app(serve, metrics=True).routes
    if isinstance(route, HTTPRoute)
    for method in route.methods
    for path in [route.path.replace("{item:str}", "msg_x").replace("{model:path}", "m")]
)
"""Every method and path the application knows."""


async def raw(url: str, *lines: str, body: bytes = b"") -> Answer:
    """An answer to these very lines."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        exchange = Exchange(reader, Answer(sent_at=0.0))
        await exchange.read_head()
        return await exchange.finish()
    finally:
        writer.close()


def refused(answer: Answer, status: int, code: str) -> None:
    assert not HEARD
    assert (answer.status, answer.error["code"]) == (status, code), answer.body
    oracle.check_error(answer.json)
    assert answer.headers["x-request-id"]
    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_the_table_of_routes_is_whole() -> None:
    paths = {path for _, path in ROUTES}

    assert {"/v1/responses", "/v1/responses/resp_x/cancel", "/v1/conversations/conv_x/items/msg_x"} <= paths
    assert {"/v1/chat/completions", "/v1/models/m", "/metrics", "/openapi.json", "/health"} <= paths


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_route_but_the_supervisor_s_needs_a_key(locked: str, method: str, path: str) -> None:
    answer = await ask(locked, Request(method, path, b"{}", {"content-type": "application/json"}))

    if path in OPEN:
        assert answer.status in {200, 204}
    else:
        refused(answer, 401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == "Bearer"


DETOURS = [
    "//v1/responses",
    "/v1//responses",
    "/v1/responses/",
    "/v1/./responses",
    "/v1/../v1/responses",
    "/health/../v1/models",
    "/health/..%2fv1/models",
    "/health%2f..%2fv1%2fmodels",
    "/health/%2e%2e/v1/models",
    "/health;/v1/models",
    "/health?/v1/models",
    "/%76%31/models",
    "/V1/MODELS",
    "/v1/models%00",
    "/v1/models%00/health",
    "/health%00",
    "/ready%20",
    "/v1/models#/health",
    "*",
]


@pytest.mark.parametrize("path", DETOURS)
async def test_no_spelling_of_a_path_goes_round_the_key(locked: str, path: str) -> None:
    for method in ("GET", "POST"):
        answer = await raw(locked, f"{method} {path} HTTP/1.1", "host: localhost", "content-length: 0")

        assert answer.status in {400, 401, 404, 405} or answer.body == b'{"status":"pass"}', answer.body
        assert b"data" not in answer.body
        assert b"said" not in answer.body


@pytest.mark.parametrize("header", ["x-http-method-override", "x-http-method", "x-method-override"])
async def test_no_header_turns_one_method_into_another(url: str, header: str) -> None:
    made = (await ask(url, posting(BODY))).json["id"]

    await ask(url, Request("GET", f"/v1/responses/{made}", headers={header: "DELETE"}))
    await ask(url, Request("POST", f"/v1/responses/{made}", b"{}", {header: "DELETE"}))

    assert (await ask(url, Request("GET", f"/v1/responses/{made}"))).status == 200


@pytest.mark.parametrize("header", ["x-original-url", "x-rewrite-url", "x-forwarded-prefix", "x-forwarded-uri"])
async def test_no_header_turns_one_path_into_another(locked: str, header: str) -> None:
    answers = [
        await ask(locked, Request("GET", path, headers={header: other}))
        for path, other in (("/health", "/v1/models"), ("/v1/models", "/health"))
    ]

    assert answers[0].json == {"status": "pass"}
    assert answers[1].status == 401


async def test_an_address_forwarded_by_the_client_changes_nothing(locked: str) -> None:
    headers = {"x-forwarded-for": "127.0.0.1", "x-real-ip": "127.0.0.1", "forwarded": "for=127.0.0.1;host=localhost"}

    refused(await ask(locked, Request("GET", "/v1/models", headers=headers)), 401, "invalid_api_key")


async def test_two_authorizations_are_none(locked: str) -> None:
    answer = await raw(
        locked,
        "GET /v1/models HTTP/1.1",
        "host: localhost",
        "authorization: Bearer wrong",
        f"authorization: Bearer {KEY}",
    )

    refused(answer, 401, "invalid_api_key")


@pytest.mark.parametrize("where", ["path", "query"])
async def test_what_is_asked_for_is_never_long_enough_to_fill_the_router_s_memory(url: str, where: str) -> None:
    long = "x" * 5000
    path = f"/v1/responses/{long}" if where == "path" else f"/v1/responses/resp_x?after={long}"

    answer = await ask(url, Request("GET", path))

    refused(answer, *((404, "route_not_found") if where == "path" else (400, "invalid_request")))
    assert len(answer.body) < 500


@pytest.mark.parametrize(
    "name", ["%00", "a%00b", "%0d%0ax-injected:%201", "%ff%fe", "..%2f..%2fetc%2fpasswd", "'%20or%201=1"]
)
async def test_an_odd_id_is_an_id_that_is_not_there(url: str, name: str) -> None:
    answers = [
        await ask(url, Request("GET", f"/v1/responses/{name}")),
        await ask(url, Request("DELETE", f"/v1/conversations/{name}")),
        await ask(url, Request("GET", f"/v1/responses/resp_x/input_items?after={name}")),
    ]

    for answer in answers:
        assert answer.status in {400, 404}
        oracle.check_error(answer.json)
        assert "x-injected" not in answer.headers


async def test_a_body_that_comes_with_a_get_is_no_request(url: str) -> None:
    answer = await ask(url, Request("GET", "/v1/responses", b'{"input":"x"}', {"content-type": "application/json"}))

    refused(answer, 405, "method_not_allowed")


# ---------------------------------------------------------------- host

FOREIGN = [
    "evil.example",
    "evil.example:8080",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evil.example.",
    "notlocalhost",
    "localhost@evil.example",
    "evil.example@localhost",
    "localhost:80@evil.example",
    "localhost:evil.example",
    "localhost evil.example",
    "localhost,evil.example",
    "localhost/evil.example",
    "[::1]evil.example",
    "[::1].evil.example",
    "[::1",
    "[2001:db8::1]:8080",
    "0.0.0.0",
    "2130706433",
    "0x7f000001",
    "017700000001",
    "127.1",
    "192.168.0.1",
    "169.254.169.254",
    "",
    ":8080",
    "localhоst",
]


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_name_that_is_not_this_machine_s_is_refused_on_every_route(url: str, host: str) -> None:
    for method, path in (("POST", "/v1/responses"), ("GET", "/health"), ("GET", "/nowhere"), ("OPTIONS", "/v1/models")):
        content = json.dumps(BODY).encode()
        answer = await raw(
            url,
            f"{method} {path} HTTP/1.1",
            f"host: {host.encode().decode('latin-1')}",
            "content-type: application/json",
            f"content-length: {len(content)}",
            body=content,
        )

        refused(answer, 403, "forbidden")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "localhost.", "app.localhost", "127.8.8.8", "[::1]:8080"])
async def test_the_names_of_this_machine_are_fine(url: str, host: str) -> None:
    assert (await ask(url, posting(BODY, host=host))).status == 200


@pytest.mark.parametrize(
    ("hosts", "status", "code"),
    [
        ((), 400, "invalid_request"),
        (("localhost", "localhost"), 400, "invalid_request"),
        (("localhost", "evil.example"), 403, "forbidden"),
        (("evil.example", "localhost"), 403, "forbidden"),
    ],
)
async def test_a_request_has_one_host(url: str, hosts: Sequence[str], status: int, code: str) -> None:
    answer = await raw(url, "GET /v1/models HTTP/1.1", *(f"host: {host}" for host in hosts))

    refused(answer, status, code)


async def test_a_probe_in_the_old_protocol_needs_no_host(url: str) -> None:
    assert (await raw(url, "GET /health HTTP/1.0")).json == {"status": "pass"}


async def test_a_whole_address_as_target_changes_neither_key_nor_host(url: str, locked: str) -> None:
    target = "GET http://evil.example/v1/models HTTP/1.1"

    refused(await raw(url, target, "host: evil.example"), 403, "forbidden")
    refused(await raw(locked, target.replace("/v1/models", "/health"), "host: evil.example"), 403, "forbidden")
    refused(await raw(locked, target, "host: localhost"), 401, "invalid_api_key")


# ---------------------------------------------------------------- pages

STRANGERS = [
    EVIL,
    "null",
    "http://127.0.0.1.evil.example",
    "http://localhost.evil.example",
    "http://evil.example#http://localhost",
    "http://localhost@evil.example",
    "file://",
    "chrome-extension://abcdefghijklmnop",
    "http://",
    "http://[",
    "https://app.example.evil.example",
    "https://evilapp.example",
    "https://app.example:8443",
    "http://app.example",
    "https://app.exampl",
    "https://app.example ,https://evil.example",
    "https://APP.example",
    "x",
    "",
]


@pytest.mark.parametrize("origin", STRANGERS)
async def test_a_stranger_s_page_gets_nothing_from_any_route(open_to_a_page: str, origin: str) -> None:
    for method, path in ROUTES:
        headers = {"origin": origin, "content-type": "application/json", "authorization": f"Bearer {KEY}"}
        answer = await ask(open_to_a_page, Request(method, path, b"{}", headers))

        refused(answer, 403, "origin_refused")


SIMPLE = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]


@pytest.mark.parametrize("kind", SIMPLE)
@pytest.mark.parametrize("tells", ["an origin", "a hidden origin", "only that it is another site", "nothing"])
async def test_a_form_of_another_page_starts_and_stops_nothing(url: str, kind: str, tells: str) -> None:
    """Simple requests, which a browser sends without asking. The last column is a browser of long ago."""
    made = (await ask(url, posting({**BODY, "background": True}))).json["id"]
    await ask(url, Request("GET", f"/v1/responses/{made}?stream=true"))  # until it is over
    HEARD.clear()
    headers = {"content-type": kind} if kind else {}
    headers |= {
        "an origin": {"origin": EVIL, "sec-fetch-site": "cross-site"},
        "a hidden origin": {"origin": "null"},
        "only that it is another site": {"sec-fetch-site": "cross-site"},
        "nothing": {},
    }[tells]
    body = b'{"input":"x","x":"=" }'
    for path in ("/v1/responses", "/v1/chat/completions", "/v1/conversations", "/v1/responses/compact"):
        answer = await ask(url, Request("POST", path, body, headers))
        refused(answer, *((415, "unsupported_media_type") if tells == "nothing" else (403, "origin_refused")))
    if tells != "nothing":
        refused(await ask(url, Request("POST", f"/v1/responses/{made}/cancel", headers=headers)), 403, "origin_refused")


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_what_the_server_s_own_page_sends_may_enter(url: str, site: str) -> None:
    answer = await ask(url, posting(BODY, **{"sec-fetch-site": site}))

    assert answer.status == 200


async def test_a_link_may_be_followed_and_a_picture_shown(url: str) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}

    assert (await ask(url, Request("GET", "/openapi.json", headers=headers))).status == 200


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1:5173", "http://[::1]:80"])
async def test_pages_of_this_machine_may_enter_but_read_nothing_unless_named(url: str, origin: str) -> None:
    answer = await ask(url, posting(BODY, origin=origin))

    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if route[0] != "OPTIONS"])
async def test_a_named_page_is_told_what_it_may_do_on_every_route(open_to_a_page: str, method: str, path: str) -> None:
    asking = {
        "origin": NAMED,
        "access-control-request-method": method,
        "access-control-request-headers": "authorization,content-type",
        "access-control-request-private-network": "true",
    }
    answer = await ask(open_to_a_page, Request("OPTIONS", path, headers=asking))

    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == NAMED
    assert method in answer.headers["access-control-allow-methods"] or method == "HEAD"
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
    assert answer.headers["access-control-allow-private-network"] == "true"
    assert "access-control-allow-credentials" not in answer.headers
    assert answer.headers["vary"] == "Origin"


async def test_a_named_page_may_read_answers_and_errors(open_to_a_page: str) -> None:
    headers = {"origin": NAMED, "authorization": f"Bearer {KEY}"}
    answers = [
        await ask(open_to_a_page, posting(BODY, **headers)),
        await ask(open_to_a_page, posting({**BODY, "stream": True}, **headers)),
        await ask(open_to_a_page, posting({}, **headers)),
        await ask(open_to_a_page, posting(BODY, origin=NAMED)),
        await ask(open_to_a_page, Request("GET", "/v1/nowhere", headers=headers)),
    ]

    assert [answer.status for answer in answers] == [200, 200, 400, 401, 404]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == NAMED
        assert "x-request-id" in answer.headers["access-control-expose-headers"]


async def test_two_origins_are_a_stranger_s(open_to_a_page: str) -> None:
    answer = await raw(
        open_to_a_page, "GET /v1/models HTTP/1.1", "host: localhost", f"origin: {NAMED}", f"origin: {NAMED}"
    )

    refused(answer, 403, "origin_refused")


@pytest.mark.parametrize("origin", STRANGERS)
async def test_a_stranger_s_page_opens_no_socket(open_to_a_page: str, origin: str) -> None:
    headers = {"authorization": f"Bearer {KEY}", "origin": origin}
    address = open_to_a_page.replace("http", "ws") + "/v1/responses"
    with pytest.raises(websockets.InvalidStatus) as failed:
        await websockets.connect(address, additional_headers=headers)

    assert failed.value.response.status_code == 403


@pytest.mark.parametrize("origin", [NAMED, "http://localhost:3000"])
async def test_a_named_page_and_one_of_this_machine_open_sockets(open_to_a_page: str, origin: str) -> None:
    headers = {"authorization": f"Bearer {KEY}", "origin": origin}
    address = open_to_a_page.replace("http", "ws") + "/v1/responses"
    async with websockets.connect(address, additional_headers=headers) as socket:
        await socket.send(json.dumps({"type": "response.create", **BODY}))
        assert json.loads(await socket.recv())["type"] == "response.created"


async def test_a_page_of_this_machine_is_a_stranger_to_a_server_that_others_reach() -> None:
    async with serving(serve, host="192.0.2.1", no_auth=True) as address:
        ours = await ask(address, posting(BODY, origin=address))
        local = await ask(address, posting(BODY, origin="http://localhost:1"))
        foreign_name = await ask(address, posting(BODY, host="models.example"))

    assert [ours.status, local.status, foreign_name.status] == [200, 403, 200]


@pytest.mark.parametrize(
    "origin", ["*", "null", "https://*.example", "https://", "app.example", "https://app.example/page", "https://a b"]
)
async def test_an_origin_that_names_nobody_in_particular_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(ValueError, match="--cors-origin"):
        build_app(serve, cors_origins=(origin,))


async def test_an_origin_may_be_written_with_a_slash_and_in_capitals() -> None:
    app = build_app(serve, cors_origins=("https://App.Example/",))
    async with running(app) as address:
        answer = await ask(address, posting(BODY, origin=NAMED))

    assert answer.headers["access-control-allow-origin"] == NAMED


async def test_the_defaults_keep_the_server_to_this_machine() -> None:
    plain = Settings()

    assert (plain.host, plain.no_auth, plain.cors_origins, plain.trust_remote_code) == ("127.0.0.1", False, (), False)
