"""A request that offers another protocol is answered over HTTP/1.1, and its body is read."""

import asyncio
from urllib.parse import urlsplit

import pytest

from mellea_responses.http.upgrades import without_offer
from support import raw
from support.serving import serving

OFFER = {
    "connection": "Upgrade, HTTP2-Settings",
    "Upgrade": "h2c",
    "http2-settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAA",
}


async def test_a_request_that_offers_http2_keeps_its_body():
    async with serving(lambda input: input[-1].content) as url:
        answer = await raw.ask(url, raw.posting({"input": "hello"}, **OFFER))

    assert answer.status == 200
    assert answer.json["output"][0]["content"][0]["text"] == "hello"


@pytest.mark.parametrize("offered", ["websocket", "WebSocket", "TLS/1.0", "h2c, websocket", ""])
async def test_a_post_that_a_proxy_sends_on_with_an_offer_keeps_its_body(offered: str):
    async with serving(lambda input: input[-1].content) as url:
        answer = await raw.ask(url, raw.posting({"input": "hello"}, connection="upgrade", Upgrade=offered))

    assert answer.status == 200
    assert answer.json["output"][0]["content"][0]["text"] == "hello"


async def test_a_post_that_offers_it_in_a_second_piece_is_refused_at_once():
    async with serving(lambda input: input[-1].content) as url:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpg")
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.write(b"rade: websocket\r\nContent-Length: 2\r\n\r\n{}")
        answered = await reader.read()
        writer.close()

    assert answered.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"POST / HTTP/1.1\r\nUpgrade: h2c\r\nHost: x\r\n\r\nh2c", b"POST / HTTP/1.1\r\nHost: x\r\n\r\nh2c"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nupgrade:H2c", b"POST / HTTP/1.1\r\nHost: x\r\nupgrade:H2c"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nupgrade:h2c\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        (b"A / B\r\n\r\n\r\nUpgrade: h2c\r\n\r\n", b"A / B\r\n\r\n\r\nUpgrade: h2c\r\n\r\n"),
        (b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"),
        (b"POST / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n{}", b"POST / HTTP/1.1\r\n\r\n{}"),
        (b"GET / HTTP/1.1\r\nX: 1\r\nUpgrade: TLS/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nX: 1\r\n\r\n"),
        (b'{"input": "Upgrade: h2c"}', b'{"input": "Upgrade: h2c"}'),
    ],
)
def test_only_the_header_that_offers_it_is_left_out(sent: bytes, read: bytes):
    assert without_offer(sent) == read
