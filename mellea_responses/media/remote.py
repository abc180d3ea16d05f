"""Pictures from the web, fetched so that a client cannot use this server as its hands.

Every address is judged: the one in the request, each that a redirect names, and each that a name stands for. A name is
looked up once, and the address that was judged is the one that is called, so names that change their mind change
nothing. Only what is public is called, on the web's own ports, with nothing in hand: no cookie, key, referrer or proxy.
Whatever fails looks the same to the client.
"""

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

import httpcore2
import httpx2

from mellea_responses.errors import InvalidRequest
from mellea_responses.media import limits
from mellea_responses.media.address import Address, host_of, is_public
from mellea_responses.media.slots import Slots

logger = logging.getLogger("mellea_responses.media")

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses that a name stands for, for a port."""
Judge = Callable[[Address], bool]

_HEADERS = [
    (b"user-agent", b"mellea-responses"),
    (b"accept", b"image/png, image/jpeg, image/webp, image/gif"),
    (b"accept-encoding", b"identity"),
]
_REDIRECTS = (301, 302, 303, 307, 308)
_CONNECT_SECONDS = 5.0
_TRIES = 3
"""Addresses of one name that are called."""


class _Refused(Exception):
    """Why a picture was not fetched, for the log."""


class Fetcher:
    """Fetches pictures.

    Args:
        resolve: Looks names up.
        judge: Which addresses may be called.
        ports: Which ports may be called.
        tls: Whom to trust; the system's own choice if left out.
    """

    def __init__(
        self,
        resolve: Resolve | None = None,
        judge: Judge = is_public,
        ports: Iterable[int] = limits.FETCH_PORTS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._caller = _Caller(resolve or look_up, judge)
        self._ports, self._tls = frozenset(ports), tls
        self._slots = Slots(8, waiting=64)

    async def fetch(self, url: str, owner: str) -> bytes:
        """What stands at an address.

        Raises:
            InvalidRequest: it may not be fetched, could not be, or is too large.
            Busy: too many of the owner's pictures wait to be fetched.
        """
        try:
            start = self._target(httpx2.URL(url))
        except (_Refused, httpx2.InvalidURL):
            raise InvalidRequest(
                "Images are fetched from http and https addresses of public hosts, on their usual ports and without a "
                "user's name.",
                code="failed_to_download_image",
            ) from None
        async with self._slots.one(owner):
            try:
                async with asyncio.timeout(limits.FETCH_SECONDS):
                    return await self._follow(start)
            except InvalidRequest:
                raise
            except Exception as exc:  # whatever a foreign server can do to us
                logger.info("an image was not fetched: %s", exc if isinstance(exc, _Refused) else type(exc).__name__)
                raise InvalidRequest(
                    "The image could not be fetched from its address.", code="failed_to_download_image"
                ) from None

    def _target(self, url: httpx2.URL) -> httpx2.URL:
        """The same, if it may be called.

        Raises:
            _Refused: it may not.
        """
        port = url.port if url.port is not None else {"http": 80, "https": 443}.get(url.scheme)
        if url.scheme not in ("http", "https") or port not in self._ports:
            raise _Refused("its scheme or port")
        if url.userinfo or len(str(url)) > limits.URL_CHARACTERS:
            raise _Refused("a user's name in it, or its length")
        host = host_of(url.raw_host.decode("ascii"))
        if host is None or (not isinstance(host, str) and not self._caller.judge(host)):
            raise _Refused("its host")
        return url

    async def _follow(self, target: httpx2.URL) -> bytes:
        if self._tls is None:
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context, trust_env=False)
        async with httpcore2.AsyncConnectionPool(
            ssl_context=self._tls, max_connections=1, max_keepalive_connections=0, network_backend=self._caller
        ) as pool:
            for _ in range(limits.FETCH_REDIRECTS + 1):
                headers = [(b"host", target.netloc), *_HEADERS]
                async with pool.stream("GET", _spelled(target), headers=headers, extensions=_TIMES) as answer:
                    if answer.status == 200:
                        return await _body(answer)
                    if answer.status not in _REDIRECTS:
                        raise _Refused(f"status {answer.status}")
                    target = self._target(target.join(_header(answer, b"location").decode("utf-8", "replace")))
        raise _Refused("too many redirects")


_TIMES: dict[str, Any] = {
    "timeout": {"connect": _CONNECT_SECONDS, **dict.fromkeys(("read", "write", "pool"), limits.FETCH_SECONDS)}
}


def _spelled(url: httpx2.URL) -> httpcore2.URL:
    return httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


async def _body(answer: httpcore2.Response) -> bytes:
    if _header(answer, b"content-encoding").lower() not in (b"", b"identity"):
        raise _Refused("its encoding")
    length = _header(answer, b"content-length")
    data = bytearray()
    if not (length.isdigit() and int(length) > limits.IMAGE_BYTES):
        async for piece in answer.aiter_stream():
            data += piece
            if len(data) > limits.IMAGE_BYTES:
                break
        else:
            return bytes(data)
    raise InvalidRequest(f"The image is larger than {limits.IMAGE_BYTES // limits.MIB} MiB.", code="invalid_image")


def _header(answer: httpcore2.Response, name: bytes) -> bytes:
    return next((value for key, value in answer.headers if key.lower() == name), b"")


class _Caller(httpcore2.AsyncNetworkBackend):
    """Opens connections to judged addresses only; the rest of the client knows nothing of addresses."""

    def __init__(self, resolve: Resolve, judge: Judge) -> None:
        self._resolve, self.judge = resolve, judge
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # the library's own signature
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address of the host that answers; no address, if one of them is not public."""
        failure: Exception = _Refused("a name without addresses")
        for address in (await self._addresses(host, port))[:_TRIES]:
            try:
                return await self._sockets.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except (httpcore2.NetworkError, httpcore2.TimeoutException) as exc:
                failure = exc
        raise failure

    async def _addresses(self, host: str, port: int) -> list[Address]:
        known = host_of(host)
        if known is None:
            raise _Refused("its host")
        found = [known] if not isinstance(known, str) else [_address(text) for text in await self._resolve(known, port)]
        if not all(map(self.judge, found)):
            raise _Refused("an address that is not public")
        return found


def _address(text: str) -> Address:
    host = host_of(text)
    if host is None or isinstance(host, str):
        raise _Refused("an address with a zone")
    return host


_lookups = threading.BoundedSemaphore(16)


async def look_up(name: str, port: int) -> list[str]:
    """Asks the system, in a thread that nobody waits for longer than they want to."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def tell(found: list[str]) -> None:
        if not answer.done():
            answer.set_result(found)

    def ask() -> None:
        found: list[str] = []
        try:
            with suppress(OSError, UnicodeError):
                asked = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
                found = [str(address[0]) for *_, address in asked]
        finally:
            _lookups.release()
            with suppress(RuntimeError):  # the loop is closed: the server has stopped
                loop.call_soon_threadsafe(tell, found)

    if not _lookups.acquire(blocking=False):
        raise _Refused("a name, while too many are looked up")
    threading.Thread(target=ask, name="look-up", daemon=True).start()
    return await answer
