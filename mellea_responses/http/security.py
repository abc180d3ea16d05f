"""Who may knock: on loopback only requests meant for this machine, with keys only their owners, no foreign pages."""

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from litestar.types import ASGIApp, Receive, Send

from mellea_responses.errors import ApiError, Forbidden, InvalidRequest, NotFound, UpgradeRequired
from mellea_responses.http.errors import REQUEST_ID, encode_error, error_headers
from mellea_responses.http.keys import NO_OWNER, Keys, read_entries
from mellea_responses.http.origins import Headers, Origins, Told, granting, preflight
from mellea_responses.ids import new_id
from mellea_responses.settings import Settings

OPEN = frozenset({"/health", "/ready"})
"""Routes that need no key: they tell a supervisor that the process lives."""
MAX_PATH = 2048
MAX_QUERY = 4096
"""Bytes; the router remembers what it was asked for, so that must be small."""

_LOCAL_NAMES = frozenset({"localhost"})
_CONTAINERS = frozenset({"host.docker.internal", "host.containers.internal"})
"""What containers call the machine they run on. The domain is reserved, so no page of the web has such a name."""
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/\s]+))(?::\d{1,5})?")
_TOLD = frozenset(
    {b"host", b"origin", b"sec-fetch-site", b"authorization", b"api-key", b"x-api-key"}
    | {b"access-control-request-" + what for what in (b"method", b"headers", b"private-network")}
)


@lru_cache(64)
def is_loopback(host: str) -> bool:
    """Whether a bound address or a `Host` name means this machine only."""
    if host in _LOCAL_NAMES or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_here(host: str) -> bool:
    return is_loopback(host) or host in _CONTAINERS


def host_name(header: str) -> str:
    """The name in a `Host` header, without its port and in small letters; empty if it is written wrongly."""
    match = _HOST.fullmatch(header.lower())
    return (match[1] or match[2].removesuffix(".")) if match else ""


def owner_secret(settings: Settings) -> bytes | None:
    """What names owners: from the seal key's file where there is one, so that its seals open after a restart."""
    if settings.seal_key is None:
        return None
    return hashlib.sha256(b"owners" + Path(settings.seal_key).read_bytes()).digest()


class Judge:
    """Who may enter, and whose request it is. One for all routes, since owners hang on its secret.

    Args:
        settings: Address, keys and origins.

    Raises:
        KeyProblem: the keys cannot be used.
        OriginProblem: an origin is written wrongly.
    """

    def __init__(self, settings: Settings) -> None:
        self._keys = Keys(read_entries(settings.api_keys, settings.api_key_file), owner_secret(settings))
        self._loopback = is_loopback(settings.host)
        self._origins = Origins(settings.cors_origins, is_loopback if self._loopback else None)
        self._websocket = settings.websocket

    def visitor(self, scope: Any, told: Told) -> bytes | None:
        """The origin of a page that the owner named, None for everybody else who may come near.

        Raises:
            ApiError: the request was not meant for this machine, or comes from a page that may not use it.
        """
        hosts = told.get(b"host", ())
        if self._loopback and not all(_is_here(host_name(host.decode("latin-1"))) for host in hosts):
            raise Forbidden("This server answers only to requests for this machine (Host: 127.0.0.1 or localhost).")
        if len(hosts) != 1 and (hosts or scope["http_version"] != "1.0"):
            raise InvalidRequest("A request needs one Host header.")
        origin = self._origins.check(scope.get("method"), told)
        if len(scope["path"]) > MAX_PATH:
            raise NotFound("There is no route with so long a path.", code="route_not_found")
        if len(scope["query_string"]) > MAX_QUERY:
            raise InvalidRequest(f"The query is longer than {MAX_QUERY} bytes.")
        return origin

    def owner(self, scope: Any, told: Told) -> str:
        """Whose request it is.

        Raises:
            Unauthorized: it carries no key of ours.
            UpgradeRequired: it asks for a WebSocket, and these are switched off.
        """
        owner = NO_OWNER
        if self._keys and scope["path"] not in OPEN:
            owner = self._keys.owner(_keys_in(told))
        if scope["type"] == "websocket" and not self._websocket:
            raise UpgradeRequired("This server offers no WebSockets; use HTTP.")
        return owner


class Doors:
    """The judge before everything, routes or not.

    Args:
        app: What lies behind.
        judge: Who may enter.
        note: Told of every refusal: the error, the owner and the request's id.
    """

    def __init__(self, app: ASGIApp, judge: Judge, note: Callable[[ApiError, str, str], None]) -> None:
        self._app, self._judge, self._note = app, judge, note

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Passes on what may enter, with its owner; refuses the rest in words."""
        told = _told(scope["headers"])
        try:
            origin = self._judge.visitor(scope, told)
            if origin is not None and scope["type"] == "http":
                if scope["method"] == "OPTIONS" and b"access-control-request-method" in told:
                    await _send(send, 204, b"", preflight(origin, told))
                    return
                send = granting(send, origin)
            scope.setdefault("state", {})["owner"] = self._judge.owner(scope, told)
        except ApiError as error:
            await self.refuse(scope, send, error)
            return
        await self._app(scope, receive, send)

    async def refuse(self, scope: Any, send: Send, error: ApiError) -> None:
        """An error before the framework; to an upgrade in words where the server can, else by closing."""
        request_id = new_id("req")
        self._note(error, scope.get("state", {}).get("owner", ""), request_id)
        kind, extensions = "http", scope.get("extensions") or {}
        if scope["type"] == "websocket":
            if "websocket.http.response" not in extensions:
                await send({"type": "websocket.close", "code": 1008, "reason": error.code})
                return
            kind = "websocket.http"
        headers = {"content-type": "application/json", REQUEST_ID: request_id, **error_headers(error)}
        pairs = [(key.encode(), value.encode()) for key, value in headers.items()]
        await _send(send, error.status, encode_error(error), pairs, kind)


def _told(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    told: dict[bytes, list[bytes]] = {}
    for key, value in headers:
        if key in _TOLD:
            told.setdefault(key, []).append(value)
    return told


def _keys_in(told: Told) -> Iterator[bytes]:
    """The keys a request carries: as a bearer token, or else by a header of its own."""
    tokens: Sequence[bytes] = told.get(b"authorization", ())
    for token in tokens:
        scheme, _, key = token.partition(b" ")
        yield key.strip() if scheme.lower() == b"bearer" else b""
    if not tokens:
        yield from told.get(b"api-key") or told.get(b"x-api-key") or ()


async def _send(send: Send, status: int, body: bytes, headers: Headers, kind: str = "http") -> None:
    length = [(b"content-length", b"%d" % len(body))] if status != 204 else []
    await send({"type": f"{kind}.response.start", "status": status, "headers": [*length, *headers]})  # type: ignore[misc,arg-type]  # one of two kinds
    await send({"type": f"{kind}.response.body", "body": body, "more_body": False})  # type: ignore[misc,arg-type]  # likewise
