"""Who may knock: on loopback only requests meant for this machine, with keys only their owners, no foreign pages."""

import hashlib
import ipaddress
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from litestar.types import ASGIApp, Receive, Scope, Send

from mellea_responses.errors import ApiError, Forbidden, UpgradeRequired
from mellea_responses.http.errors import encode_error
from mellea_responses.http.keys import NO_OWNER, Keys
from mellea_responses.settings import Settings

OPEN = frozenset({"/health", "/ready"})
"""Routes that need no key: they tell a supervisor that the process lives."""

_LOCAL_NAMES = frozenset({"localhost"})


@lru_cache(64)
def is_loopback(host: str) -> bool:
    """Whether a bound address or a `Host` name means this machine only."""
    if host in _LOCAL_NAMES or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a `Host` header, without its port and in small letters."""
    header = header.lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if ":" in header else header


def owner_secret(settings: Settings) -> bytes | None:
    """What names owners: from the seal key's file where there is one, so that its seals open after a restart."""
    if settings.seal_key is None:
        return None
    return hashlib.sha256(b"owners" + Path(settings.seal_key).read_bytes()).digest()


class Judge:
    """Who may enter, and whose request it is. One for all routes, since owners hang on its secret.

    Args:
        settings: Address, keys and origins.
    """

    def __init__(self, settings: Settings) -> None:
        self._keys = Keys(settings.api_keys, owner_secret(settings))
        self._loopback = is_loopback(settings.host)
        self._origins = frozenset(settings.cors_origins)
        self._websocket = settings.websocket

    def owner(self, scope: Scope) -> str:
        """The owner of an HTTP request.

        Raises:
            Forbidden: it was not meant for this machine.
            Unauthorized: it carries no key of ours.
        """
        hosts = [value.decode("latin-1") for key, value in scope["headers"] if key == b"host"]
        if self._loopback and not all(is_loopback(host_name(host)) for host in hosts):
            raise Forbidden("This server answers only to requests for this machine (Host: 127.0.0.1 or localhost).")
        if not self._keys or scope["path"] in OPEN:
            return NO_OWNER
        return self._keys.owner(_header(scope, b"authorization"))

    def owner_of_socket(self, scope: Scope) -> str:
        """The same for an upgrade to a WebSocket, which a page may ask for without a preflight.

        Raises:
            UpgradeRequired: WebSockets are switched off.
        """
        owner = self.owner(scope)
        if not self._websocket:
            raise UpgradeRequired("This server offers no WebSockets; use HTTP.")
        origin = _header(scope, b"origin")
        if origin is not None and origin not in self._origins:
            name = urlsplit(origin).hostname or ""
            if not (self._loopback and is_loopback(name)):
                raise Forbidden("Pages of this origin may not connect; name it with --cors-origin.")
        return owner


class Doors:
    """The judge before every route of the framework.

    Args:
        app: What lies behind.
        judge: Who may enter.
    """

    def __init__(self, app: ASGIApp, judge: Judge) -> None:
        self._app, self._judge = app, judge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on what may enter; refuses an upgrade in words, where the server can."""
        kind: str = scope["type"]
        if kind == "http":
            scope["state"]["owner"] = self._judge.owner(scope)
        elif kind == "websocket":
            try:
                scope["state"]["owner"] = self._judge.owner_of_socket(scope)
            except ApiError as error:
                await _refuse_upgrade(scope, send, error)
                return
        await self._app(scope, receive, send)


async def _refuse_upgrade(scope: Scope, send: Send, error: ApiError) -> None:
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.code})
        return
    body = encode_error(error)
    headers = {"content-type": "application/json", "content-length": str(len(body)), **error.headers}
    pairs = [(key.encode(), value.encode()) for key, value in headers.items()]
    await send({"type": "websocket.http.response.start", "status": error.status, "headers": pairs})
    await send({"type": "websocket.http.response.body", "body": body, "more_body": False})


def _header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)
