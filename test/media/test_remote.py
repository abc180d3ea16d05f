"""Pictures from the web, over real sockets: 127.0.0.2 plays the internet, 127.0.0.1 and ::1 what is inside.

A connection to what is inside is what every attack here is after, so `Inside` counts them.
"""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from mellea_responses.errors import InvalidRequest
from mellea_responses.media import limits, remote
from mellea_responses.media.address import Address
from mellea_responses.media.remote import Fetcher, look_up
from support.pictures import picture_bytes

OUTSIDE, INSIDE = "127.0.0.2", "127.0.0.1"
PNG = picture_bytes("PNG")
FAILED = "could not be fetched"
TLS = ssl.create_default_context()
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def judge(address: Address) -> bool:
    """The internet of these tests."""
    return address == ip_address(OUTSIDE)


def reply(body: bytes = PNG, status: str = "200 OK", **headers: str) -> bytes:
    fields = {"content_length": str(len(body)), "content_type": "image/png", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


class Host:
    """A web server: what it was asked, and what it answers to each path."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.connections = 0
        self.pages: dict[str, bytes | Answer] = {}
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heard.append(head)
            page = self.pages.get(head.split()[1].decode(), reply(b"no", "404 Not Found"))
            if isinstance(page, bytes):
                writer.write(page)
                await writer.drain()
            else:
                await page(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def listening(address: str, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Host]:
    host = Host()
    server = await asyncio.start_server(host.serve, address, port, ssl=tls)
    host.port = server.sockets[0].getsockname()[1]
    try:
        yield host
    finally:
        server.close()


class World:
    """An inside and an outside on one port, and what names stand for: each lookup takes the next answer."""

    def __init__(self, outside: Host, inside: Host, inside6: Host) -> None:
        self.outside, self.inside, self.inside6 = outside, inside, inside6
        self.names: dict[str, list[list[str]]] = {"pictures.example": [[OUTSIDE]]}
        self.asked: list[str] = []

    async def resolve(self, name: str, port: int) -> list[str]:
        self.asked.append(name)
        answers = self.names.get(name, [[]])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def fetcher(self, **more: Any) -> Fetcher:
        return Fetcher(**{"resolve": self.resolve, "judge": judge, "ports": {self.outside.port}, "tls": TLS, **more})

    def url(self, path: str = "/a.png", host: str = "pictures.example") -> str:
        return f"http://{host}:{self.outside.port}{path}"

    async def refused(self, url: str, words: str = FAILED, **more: Any) -> InvalidRequest:
        with pytest.raises(InvalidRequest, match=words) as caught:
            await self.fetcher(**more).fetch(url, "ada")
        assert self.inside.connections == self.inside6.connections == 0
        return caught.value


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        outside = await stack.enter_async_context(listening(OUTSIDE))
        inside = await stack.enter_async_context(listening(INSIDE, outside.port))
        inside6 = await stack.enter_async_context(listening("::1", outside.port))
        for host in (outside, inside, inside6):
            host.pages["/a.png"] = reply()
        yield World(outside, inside, inside6)


# ---------------------------------------------------------------- what is fetched


async def test_a_picture_is_fetched_with_nothing_in_hand(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{INSIDE}:{world.outside.port}")
    world.outside.pages["/a.png?b=c%20d"] = reply(set_cookie="a=b")

    for _ in range(2):
        assert await world.fetcher().fetch(world.url("/a.png?b=c d#part"), "ada") == PNG

    head = world.outside.heard[1].decode().lower().splitlines()
    assert head[0] == "get /a.png?b=c%20d http/1.1"
    assert sorted(line.partition(":")[0] for line in head[1:] if line) == [
        "accept", "accept-encoding", "host", "user-agent",
    ]  # fmt: skip
    assert f"host: pictures.example:{world.outside.port}" in head
    assert "user-agent: mellea-responses" in head
    assert world.inside.connections == 0


async def test_an_address_instead_of_a_name_is_not_looked_up(world: World) -> None:
    assert await world.fetcher().fetch(world.url(host=OUTSIDE), "ada") == PNG
    assert world.asked == []


async def test_an_address_of_ipv6_is_called_and_named_in_brackets(world: World) -> None:
    fetcher = world.fetcher(judge=lambda address: str(address) == "::1")

    assert await fetcher.fetch(world.url(host="[::1]"), "ada") == PNG
    assert f"host: [::1]:{world.outside.port}\r\n".encode() in world.inside6.heard[0].lower()


async def test_chunks_are_put_together(world: World) -> None:
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(PNG[i : i + 7]), PNG[i : i + 7]) for i in range(0, len(PNG), 7))
    world.outside.pages["/c"] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"

    assert await world.fetcher().fetch(world.url("/c"), "ada") == PNG


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed_each_over_a_judged_connection_of_its_own(world: World, status: int) -> None:
    world.names["cdn.example"] = [[OUTSIDE]]
    world.outside.pages |= {
        "/1": reply(b"", f"{status} Moved", location="/2"),
        "/2": reply(b"", f"{status} Moved", location=f"//cdn.example:{world.outside.port}/3"),
        "/3": reply(b"", f"{status} Moved", location=world.url("/a.png")),
    }

    assert await world.fetcher().fetch(world.url("/1"), "ada") == PNG
    assert world.outside.connections == 4
    assert world.asked == ["pictures.example", "pictures.example", "cdn.example", "pictures.example"]


async def test_the_next_address_is_tried_where_one_does_not_answer(world: World) -> None:
    world.names["pictures.example"] = [["127.0.0.3", OUTSIDE]]

    fetched = await world.fetcher(judge=lambda address: str(address) in ("127.0.0.3", OUTSIDE)).fetch(
        world.url(), "ada"
    )

    assert fetched == PNG


# ---------------------------------------------------------------- what is inside stays unreached


@pytest.mark.parametrize(
    "host",
    [
        INSIDE, "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:2]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.000.000.001",
        "0", "0.0.0.0", "[::]", "localhost", "localhost.", "pictures.example.", "[fe80::1%25lo]", "[::1%25lo]",
        "a@127.0.0.1", "pictures.example@127.0.0.1", "a:b@pictures.example", "127.0.0.1%23@pictures.example",
        "127。0。0。1", "１２７.0.0.1", "①②⑦.0.0.1", "",
        "127.0.0.1\\@pictures.example", "pictures.example\\.127.0.0.1", "%31%32%37.0.0.1", "xn--",
    ],
)  # fmt: skip
async def test_no_spelling_of_an_inner_host_is_called(world: World, host: str) -> None:
    await world.refused(world.url(host=host), "are fetched from")
    assert world.outside.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        "ftp://pictures.example/a", "file:///etc/passwd", "gopher://pictures.example/a", "ws://pictures.example/",
        "unix:/var/run/docker.sock", "//pictures.example/a.png", "/a.png", "http:a.png", "http:///a.png", "http://",
        "http://pictures.example:22/", "http://pictures.example:0/", "http://pictures.example:99999/",
        "http://pictures.example:x/", "http://pictures.example:-1/", "https://pictures.example:80/",
        "http://pictures.example/a\r\nHost: x", "http://pictures.example/\x00", "http://[::1", "http://a]b/",
        "http://pictures.example/" + "a" * 9000, "http://" + "a." * 40_000 + "example/",
    ],
)  # fmt: skip
async def test_other_schemes_ports_and_no_addresses_at_all_are_refused(world: World, url: str) -> None:
    await world.refused(url, "are fetched from", ports={world.outside.port, 443, 80} if "https" not in url else {443})


async def test_a_name_that_stands_for_something_inside_is_refused_even_among_others(world: World) -> None:
    for addresses in (
        [INSIDE], ["::1"], [OUTSIDE, INSIDE], [OUTSIDE, "::1"], ["::1", OUTSIDE], ["::ffff:127.0.0.2"],
        ["10.0.0.1"], ["169.254.169.254"], ["fe80::1%lo"], ["127.0.0.1%lo"], [],
    ):  # fmt: skip
        world.names["pictures.example"] = [addresses]
        await world.refused(world.url())
    assert world.outside.connections == 0


async def test_a_name_that_changes_its_mind_changes_nothing(world: World) -> None:
    """Judged outside, then inside: whoever looks it up again to connect is lost."""
    world.names["pictures.example"] = [[OUTSIDE], [INSIDE], ["::1"]]

    assert await world.fetcher().fetch(world.url(), "ada") == PNG
    assert world.asked == ["pictures.example"]
    await world.refused(world.url())
    await world.refused(world.url())


async def test_a_redirect_back_to_a_name_that_has_changed_its_mind_is_refused(world: World) -> None:
    world.names["pictures.example"] = [[OUTSIDE], [INSIDE]]
    world.outside.pages["/1"] = reply(b"", "302 Found", location="/a.png")

    await world.refused(world.url("/1"))
    assert world.outside.connections == 1


@pytest.mark.parametrize(
    "place",
    [
        "http://127.0.0.1:{port}/a.png", "http://[::1]:{port}/a.png", "http://2130706433:{port}/a.png",
        "http://[::ffff:127.0.0.1]:{port}/a.png", "http://inside.example:{port}/a.png", "//inside.example:{port}/a.png",
        "http://pictures.example@127.0.0.1:{port}/a.png", "http://a:b@pictures.example:{port}/a.png",
        "file:///etc/passwd", "ftp://pictures.example/", "http://pictures.example:1/a.png",
        "data:image/png;base64,AAAA",
        "http://localhost:{port}/a.png", "http://127.0.0.1:{port}\\@pictures.example/a.png", "\\\\127.0.0.1\\a", "", "http://",
        "http://[", "https://pictures.example:{port}/a.png",
    ],
)  # fmt: skip
async def test_a_redirect_leads_nowhere_that_the_first_address_could_not(world: World, place: str) -> None:
    world.names["inside.example"] = [[INSIDE]]
    world.outside.pages["/1"] = reply(b"", "302 Found", location=place.format(port=world.outside.port))

    await world.refused(world.url("/1"))


async def test_more_redirects_than_three_are_none(world: World) -> None:
    for i in range(5):
        world.outside.pages[f"/{i}"] = reply(b"", "302 Found", location=f"/{i + 1}")
    world.outside.pages |= {"/4": reply(), "/loop": reply(b"", "302 Found", location="/loop")}

    assert await world.fetcher().fetch(world.url("/1"), "ada") == PNG
    await world.refused(world.url("/0"))
    await world.refused(world.url("/loop"))
    assert world.outside.connections == 4 + 4 + 4


async def test_whatever_fails_looks_the_same(world: World) -> None:
    """A client must not tell from our words what is inside: a port that is closed, one that is open, or no host."""
    world.outside.pages |= {
        "/500": reply(b"secret", "500 Oops"),
        "/redirect": reply(b"", "302 Found", location=f"http://{INSIDE}:{world.outside.port}/a.png"),
        "/closed": reply(b"", "302 Found", location=f"http://{INSIDE}:1/a.png"),
        "/junk": b"SSH-2.0-OpenSSH_9.6\r\n",
        "/nothing": b"",
        "/huge-head": b"HTTP/1.1 200 OK\r\n" + b"a: " + b"b" * 300_000 + b"\r\n\r\n",
    }
    world.names |= {"inside.example": [[INSIDE]], "closed.example": [["127.0.0.4"]], "gone.example": [[]]}

    def open_too(address: Address) -> bool:
        return judge(address) or str(address) == "127.0.0.4"

    urls = [world.url(path) for path in ("/500", "/404", "/redirect", "/closed", "/junk", "/nothing", "/huge-head")]
    urls += [world.url(host=host) for host in ("inside.example", "closed.example", "gone.example")]
    failures = [await world.refused(url, judge=open_too) for url in urls]

    assert {(error.message, error.code) for error in failures} == {
        ("The image could not be fetched from its address.", "failed_to_download_image")
    }


# ---------------------------------------------------------------- limits


async def test_a_picture_is_cut_off_at_its_limit_whatever_it_says(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IMAGE_BYTES", limits.MIB)
    sent = 0

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(bytes(65536))
            await writer.drain()
            sent += 65536

    world.outside.pages |= {"/says": reply(b"", content_length=str(2**40)), "/endless": endless}
    for path in ("/says", "/endless"):
        await world.refused(world.url(path), "larger than 1 MiB")
    assert sent < 32 * limits.MIB


async def test_a_body_in_disguise_is_refused(world: World) -> None:
    for encoding in ("gzip", "br", "deflate, gzip", "x"):
        world.outside.pages["/z"] = reply(gzip.compress(PNG), content_encoding=encoding)
        await world.refused(world.url("/z"))


async def test_a_body_that_is_shorter_than_it_says_is_refused(world: World) -> None:
    world.outside.pages["/short"] = reply(content_length=str(len(PNG) + 1))

    await world.refused(world.url("/short"))


async def test_a_host_that_drips_or_says_nothing_is_left_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FETCH_SECONDS", 0.3)

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async def dripping(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def never(_name: str, _port: int) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    world.outside.pages |= {"/silent": silent, "/dripping": dripping}
    for path in ("/silent", "/dripping"):
        await world.refused(world.url(path))
    await world.refused(world.url(), resolve=never)


async def test_eight_are_fetched_at_a_time_and_the_others_wait(world: World) -> None:
    gate, here, most = asyncio.Event(), 0, 0

    async def held(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal here, most
        here += 1
        most = max(most, here)
        await gate.wait()
        here -= 1
        writer.write(reply())
        await writer.drain()

    world.outside.pages["/held"] = held
    fetcher = world.fetcher()
    tasks = [asyncio.create_task(fetcher.fetch(world.url("/held"), "ada")) for _ in range(30)]
    while here < 8:  # noqa: ASYNC110  # the server's side tells
        await asyncio.sleep(0.005)
    gate.set()

    assert await asyncio.gather(*tasks) == [PNG] * 30
    assert most == 8


# ---------------------------------------------------------------- names and certificates


async def test_the_system_knows_its_own_names_and_is_not_asked_for_more_than_it_can_bear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await look_up("127.0.0.2", 80) == ["127.0.0.2"]
    assert await look_up("a..b", 80) == []

    monkeypatch.setattr(remote._lookups, "acquire", lambda blocking: False)
    with pytest.raises(Exception, match="too many"):
        await look_up("127.0.0.2", 80)


def certified(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server with a certificate for a name, and a client that trusts it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "both.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "both.pem")
    return server, ssl.create_default_context(cadata=made.public_bytes(serialization.Encoding.PEM).decode())


async def test_over_tls_the_certificate_is_the_name_s_not_the_address_s(tmp_path: Path) -> None:
    served, trusting = certified(tmp_path, "pictures.example")
    names: list[str | None] = []
    served.sni_callback = lambda _socket, name, _context: names.append(name)

    async def resolve(_name: str, _port: int) -> list[str]:
        return [OUTSIDE]

    async with listening(OUTSIDE, tls=served) as host:
        host.pages["/a.png"] = reply()
        fetcher = Fetcher(resolve, judge, {host.port}, trusting)
        url = "https://{}:" + str(host.port) + "/a.png"

        assert await fetcher.fetch(url.format("pictures.example"), "ada") == PNG
        for other, tls in (("other.example", trusting), (OUTSIDE, trusting), ("pictures.example", None)):
            with pytest.raises(InvalidRequest, match=FAILED):
                await Fetcher(resolve, judge, {host.port}, tls).fetch(url.format(other), "ada")

    assert names[0] == "pictures.example"
