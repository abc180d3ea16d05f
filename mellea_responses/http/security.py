"""Who may knock: on loopback only requests that were meant for loopback."""

import ipaddress
from typing import Any

from litestar.types import ASGIApp, Receive, Scope, Send

from mellea_responses.errors import Forbidden

_LOCAL_NAMES = frozenset({"localhost", "testserver.local"})


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


class HostCheck:
    """Refuses a `Host` that is not this machine: a page that re-binds its own name to 127.0.0.1 sends its own name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on what names this machine."""
        if scope["type"] in ("http", "websocket"):
            host = _header(scope, b"host")
            if host is not None and not is_loopback(host_name(host)):
                raise Forbidden("This server answers only to requests for this machine (Host: 127.0.0.1 or localhost).")
        await self._app(scope, receive, send)


def _header(scope: Any, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)
