"""Who may knock: on loopback only requests meant for this machine, with keys only their owners, no foreign pages."""

import hashlib
import ipaddress
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from litestar.types import ASGIApp, Receive, Scope, Send

from mellea_responses.errors import ApiError, Forbidden, UpgradeRequired
from mellea_responses.http.keys import Keys
from mellea_responses.settings import Settings
from mellea_responses.wire.response import ErrorAnswer, ErrorBody

OPEN = frozenset({"/health", "/ready"})
"""Routes that need no key: they tell a supervisor that the process lives."""

_LOCAL_NAMES = frozenset({"localhost"})


def is_loopback(host: str) -> bool:
    """Whether a bound address or a `Host` name means this machine only."""
    if host in _LOCAL_NAMES or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a `Host` header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if ":" in header else header


def doors(settings: Settings) -> Callable[[ASGIApp], "Doors"]:
    """The middleware for these settings; all routes share the keys, since owners hang on their secret."""
    keys = Keys(settings.api_keys, owner_secret(settings))
    return lambda app: Doors(app, settings, keys)


def owner_secret(settings: Settings) -> bytes | None:
    """What names owners: from the seal key's file where there is one, so that its seals open after a restart."""
    if settings.seal_key is None:
        return None
    return hashlib.sha256(b"owners" + Path(settings.seal_key).read_bytes()).digest()


class Doors:
    """Judges every connection before a route sees it, and names its owner.

    Args:
        app: What lies behind.
        settings: Address and origins.
        keys: Who may enter.
    """

    def __init__(self, app: ASGIApp, settings: Settings, keys: Keys) -> None:
        self._app, self._keys = app, keys
        self._loopback = is_loopback(settings.host)
        self._origins = frozenset(settings.cors_origins)
        self._websocket = settings.websocket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on what may enter; refuses an upgrade in words, where the server can."""
        kind: str = scope["type"]
        if kind == "http":
            self._judge(scope)
        elif kind == "websocket":
            try:
                self._judge(scope)
                self._judge_upgrade(scope)
            except ApiError as error:
                await _refuse_upgrade(scope, send, error)
                return
        await self._app(scope, receive, send)

    def _judge(self, scope: Scope) -> None:
        hosts = [value.decode("latin-1") for key, value in scope["headers"] if key == b"host"]
        if self._loopback and not all(is_loopback(host_name(host)) for host in hosts):
            raise Forbidden("This server answers only to requests for this machine (Host: 127.0.0.1 or localhost).")
        if self._keys and scope["path"] not in OPEN:
            scope["state"]["owner"] = self._keys.owner(_header(scope, b"authorization"))

    def _judge_upgrade(self, scope: Scope) -> None:
        if not self._websocket:
            raise UpgradeRequired("This server offers no WebSockets; use HTTP.")
        origin = _header(scope, b"origin")
        if origin is None or origin in self._origins:
            return
        name = urlsplit(origin).hostname or ""
        if not (self._loopback and is_loopback(name)):
            raise Forbidden("Pages of this origin may not connect; name it with --cors-origin.")


async def _refuse_upgrade(scope: Scope, send: Send, error: ApiError) -> None:
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.code})
        return
    body = msgspec.json.encode(ErrorAnswer(ErrorBody(error.message, error.type, error.param, error.code)))
    headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
    pairs = [(key.encode(), value.encode()) for key, value in headers.items()]
    await send({"type": "websocket.http.response.start", "status": error.status, "headers": pairs})
    await send({"type": "websocket.http.response.body", "body": body, "more_body": False})


def _header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)
