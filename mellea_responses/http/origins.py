"""Pages in browsers: whose may use this server, and the headers that tell their browser so.

A browser names the page behind a request in `Origin`, or at least says that it is another site's. It lets any page send
simple requests without asking and only keeps the answer from it, so those of strangers are refused here. Programs that
are no pages send neither header.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from litestar.types import Message, Send

from mellea_responses.errors import Forbidden

Told = Mapping[bytes, Sequence[bytes]]
"""What a request says of where it comes from: the headers that matter, each with its values."""
Headers = list[tuple[bytes, bytes]]

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_STRANGE = frozenset({b"cross-site", b"same-site"})
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\\*\s]+")
_EXPOSED = b"x-request-id, x-should-retry, retry-after, x-mellea-unsupported-tools"


class OriginProblem(ValueError):
    """An origin that names nobody in particular, or is written as no browser writes it."""


class Origins:
    """Who may enter of those that a browser speaks for.

    Args:
        named: Origins that the owner named.
        is_neighbour: Whether a host is this machine, whose pages may enter; None where none may.

    Raises:
        OriginProblem: one of `named` is no origin.
    """

    def __init__(self, named: Iterable[str], is_neighbour: Callable[[str], bool] | None = None) -> None:
        self._named = frozenset(map(_checked, named))
        self._is_neighbour = is_neighbour

    def check(self, method: str | None, told: Told) -> bytes | None:
        """The origin the owner named, if the request is a page's of it.

        Args:
            method: The request's; None for an upgrade to a WebSocket.
            told: `host`, `origin` and `sec-fetch-site`.

        Raises:
            Forbidden: a page of an origin that may not use this server.
        """
        origins = told.get(b"origin")
        if origins is None:
            if method not in _SAFE and any(site in _STRANGE for site in told.get(b"sec-fetch-site", ())):
                raise _stranger()
            return None
        if len(origins) == 1:
            if origins[0] in self._named:
                return origins[0]
            if self._is_ours(origins[0], told.get(b"host", ())):
                return None
        raise _stranger()

    def _is_ours(self, origin: bytes, hosts: Sequence[bytes]) -> bool:
        """Whether the page came from this server itself, or from a neighbour on the same machine."""
        try:
            address = urlsplit(origin.decode("ascii").lower())
            name = address.hostname or ""
        except ValueError:
            return False
        if address.scheme not in ("http", "https") or not name:
            return False
        same = [address.netloc] == [host.decode("latin-1").lower() for host in hosts]
        return same or (self._is_neighbour is not None and self._is_neighbour(name))


def preflight(origin: bytes, told: Told) -> Headers:
    """What a browser is told that asks before it sends a named page's request."""
    headers = [*_granted(origin), (b"access-control-allow-methods", b"GET, POST, DELETE")]
    if asked := told.get(b"access-control-request-headers"):
        headers.append((b"access-control-allow-headers", b", ".join(asked)))
    if told.get(b"access-control-request-private-network") == [b"true"]:
        headers.append((b"access-control-allow-private-network", b"true"))
    return [*headers, (b"access-control-max-age", b"600")]


def granting(send: Send, origin: bytes) -> Send:
    """Sends answers that a page of this origin may read."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [*_granted(origin), (b"access-control-expose-headers", _EXPOSED)]
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await send(message)

    return sending


def _granted(origin: bytes) -> Headers:
    return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]


def _checked(origin: str) -> bytes:
    written = origin.strip().removesuffix("/").lower()
    if not _ORIGIN.fullmatch(written) or not written.isascii():
        raise OriginProblem(
            f"--cors-origin {origin!r} names no origin; write one as a browser does, such as https://app.example: "
            "scheme, host and port, no path and no wildcard."
        )
    return written.encode()


def _stranger() -> Forbidden:
    return Forbidden("Pages of this origin may not use this server; name it with --cors-origin.", code="origin_refused")
