"""The body of a request: JSON, perhaps compressed, never larger than the limit even after inflation."""

import zlib
from collections.abc import Callable
from typing import Any

import zstandard
from litestar import Request

from mellea_responses.errors import ContentTooLarge, InvalidRequest, UnsupportedMediaType
from mellea_responses.http.holds import hold_of

_CHUNK = 2**10
_MARK = b"\xef\xbb\xbf"
_MEMBERS = 4096
"""Members or frames that one body may have; each costs time though it may be empty."""


def check_json(content_type: str) -> None:
    """Any page in a browser may send text/plain without asking; JSON it may not.

    Raises:
        UnsupportedMediaType: the body is not declared as JSON.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMediaType("Send the body as content-type: application/json.")


def json_body(request: Request[Any, Any, Any], body: bytes, limit: int) -> bytes:
    """The plain JSON of a request's body.

    Raises:
        UnsupportedMediaType: it is not declared as JSON, or in an encoding we do not read.
        ContentTooLarge: it inflates beyond `limit` bytes.
        InvalidRequest: it is not encoded as it says.
        Busy: its owner holds too much already.
    """
    check_json(request.headers.get("content-type", ""))
    plain = inflate(body, request.headers.get("content-encoding", ""), limit)
    hold_of(request.scope).take(max(0, len(plain) - len(body)))
    return without_mark(plain)


def without_mark(body: bytes) -> bytes:
    """The JSON without the byte order mark that some writers put before it; RFC 8259 lets a reader pass over it."""
    return body.removeprefix(_MARK)


def inflate(body: bytes, encoding: str, limit: int) -> bytes:
    """The plain body of one sent with `content-encoding`.

    Raises:
        UnsupportedMediaType: the encoding is none of gzip, deflate and zstd.
        ContentTooLarge: it inflates beyond `limit` bytes.
        InvalidRequest: it is not what it says.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    begin = _ENCODINGS.get(encoding)
    if begin is None:
        raise UnsupportedMediaType(f"content-encoding {encoding[:32]!r} is not supported; send gzip, deflate or zstd.")
    try:
        return _whole(body, begin, limit)
    except (zlib.error, zstandard.ZstdError, EOFError):
        raise InvalidRequest(f"The body is not valid {encoding}.", code="invalid_encoding") from None


def _whole(body: bytes, begin: Callable[[], Any], limit: int) -> bytes:
    """Every member of the body; several are one after the other, and the last is whole."""
    pieces: list[bytes] = []
    view, at, left = memoryview(body), 0, limit
    for _ in range(_MEMBERS):
        inflater = begin()
        while not inflater.eof:
            if at >= len(view):
                raise EOFError
            # Small pieces in: each may become thousands of times as large, and what a member leaves over is copied.
            given = view[at : at + _CHUNK]
            piece = inflater.decompress(given)
            left -= len(piece)
            if left < 0:
                raise _too_large(limit)
            pieces.append(piece)
            at += len(given) - len(inflater.unused_data)
        if at == len(view):
            return b"".join(pieces)
    raise EOFError


_ENCODINGS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(16 + zlib.MAX_WBITS),
    "x-gzip": lambda: zlib.decompressobj(16 + zlib.MAX_WBITS),
    "deflate": zlib.decompressobj,
    # RFC 9659 lets nobody ask for a larger window.
    "zstd": lambda: zstandard.ZstdDecompressor(max_window_size=2**23).decompressobj(),
}


def _too_large(limit: int) -> ContentTooLarge:
    return ContentTooLarge(f"The body inflates to more than {limit} bytes.")
