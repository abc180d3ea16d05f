"""A client that offers HTTP/2 with its request is answered over HTTP/1.1, and its body is read."""

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


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"POST / HTTP/1.1\r\nUpgrade: h2c\r\nHost: x\r\n\r\nh2c", b"POST / HTTP/1.1\r\nHost: x\r\n\r\nh2c"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nupgrade:H2c", b"POST / HTTP/1.1\r\nHost: x\r\nupgrade:H2c"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nupgrade:h2c\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        (b"A / B\r\n\r\n\r\nUpgrade: h2c\r\n\r\n", b"A / B\r\n\r\n\r\nUpgrade: h2c\r\n\r\n"),
        (b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"),
        (b'{"input": "Upgrade: h2c"}', b'{"input": "Upgrade: h2c"}'),
    ],
)
def test_only_the_header_that_offers_it_is_left_out(sent: bytes, read: bytes):
    assert without_offer(sent) == read
