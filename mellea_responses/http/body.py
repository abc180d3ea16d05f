"""The body of a request: JSON, perhaps compressed, never larger than the limit even after inflation."""

import zlib
from typing import Any

import zstandard
from litestar import Request

from mellea_responses.errors import ContentTooLarge, InvalidRequest, UnsupportedMediaType
from mellea_responses.http.holds import hold_of

_CHUNK = 2**16
_MEMBERS = 4096
"""Members that one gzip body may have; each costs time though it may be empty."""


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
    return plain


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
    try:
        if encoding in ("gzip", "x-gzip"):
            return _unzip(body, 16 + zlib.MAX_WBITS, limit)
        if encoding == "deflate":
            return _unzip(body, zlib.MAX_WBITS, limit)
        if encoding == "zstd":
            return _unzstd(body, limit)
    except (zlib.error, zstandard.ZstdError, EOFError):
        raise InvalidRequest(f"The body is not valid {encoding}.", code="invalid_encoding") from None
    raise UnsupportedMediaType(f"content-encoding {encoding[:32]!r} is not supported; send gzip, deflate or zstd.")


def _unzip(body: bytes, bits: int, limit: int) -> bytes:
    """Every member of the body; several are one after the other."""
    pieces: list[bytes] = []
    view, at, left = memoryview(body), 0, limit
    for _ in range(_MEMBERS):
        inflater = zlib.decompressobj(bits)
        while not inflater.eof:
            if at >= len(view):
                raise EOFError
            # Small pieces in: what a member leaves over is copied, and there may be many members.
            given = view[at : at + _CHUNK]
            piece = inflater.decompress(given, left + 1)
            left -= len(piece)
            if left < 0:
                raise _too_large(limit)
            pieces.append(piece)
            at += len(given) - len(inflater.unused_data)
        if at == len(view):
            return b"".join(pieces)
    raise EOFError


def _unzstd(body: bytes, limit: int) -> bytes:
    """Every frame of the body; RFC 9659 lets nobody ask for a larger window."""
    reader = zstandard.ZstdDecompressor(max_window_size=2**23).stream_reader(body, read_across_frames=True)
    pieces, size = [], 0
    while piece := reader.read(_CHUNK):
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        pieces.append(piece)
    return b"".join(pieces)


def _too_large(limit: int) -> ContentTooLarge:
    return ContentTooLarge(f"The body inflates to more than {limit} bytes.")
