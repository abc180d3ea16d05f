"""Bytes that stand in the request itself: a data URL, or bare base64."""

import re
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from mellea_responses.errors import InvalidRequest

_HEAD = re.compile(
    r"data:(?P<kind>[\w.+-]+/[\w.+-]+)?(?P<more>(?:;\s*[\w-]+=(?:\"[^\"]*\"|[^;,\"]*))*);\s*base64,", re.IGNORECASE
)
_CHARSET = re.compile(r";\s*charset=\"?([\w.:+-]+)", re.IGNORECASE)
_HEAD_CHARACTERS = 1024
_SPACE = b" \t\r\n\f\v"
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


class Inline(NamedTuple):
    """What was enclosed, with the media type and charset that the client claims; empty where it claims none."""

    data: bytes
    kind: str = ""
    charset: str = ""


def is_data_url(url: str) -> bool:
    """Whether the address holds the bytes themselves, in base64."""
    return _HEAD.match(url[:_HEAD_CHARACTERS]) is not None


def decode(text: str, limit: int, what: str) -> Inline:
    """The bytes in a data URL or in bare base64: standard or URL-safe, wrapped or not, padded or not.

    Args:
        text: What the client sent.
        limit: Bytes it may be.
        what: What to call it in errors: `image` or `file`.

    Raises:
        InvalidRequest: it is neither, or too large, or empty.
    """
    head = _HEAD.match(text[:_HEAD_CHARACTERS])
    if head is None and text[:5].lower() == "data:":
        raise InvalidRequest(f"The {what} must be a data URL in base64: `data:…;base64,…`.", code="invalid_base64")
    start = head.end() if head else 0
    if len(text) - start > limit * 3 // 2 + 1024:  # a third more in base64, and room for line breaks
        raise _too_large(limit, what)
    data = _bytes(text[start:], what)
    if len(data) > limit:
        raise _too_large(limit, what)
    if not data:
        raise InvalidRequest(f"The {what} is empty.", code="invalid_base64")
    if head is None:
        return Inline(data)
    charset = _CHARSET.search(head["more"])
    return Inline(data, (head["kind"] or "").lower(), charset[1].lower() if charset else "")


def _bytes(text: str, what: str) -> bytes:
    with suppress(msgspec.ValidationError, UnicodeError):
        return msgspec.convert(text, bytes)  # several times faster than `base64`, and strict
    try:
        raw = text.encode("ascii")
        if b"%" in raw:
            raw = unquote_to_bytes(raw)
        raw = raw.translate(_URL_SAFE, _SPACE).rstrip(b"=")
        return msgspec.convert((raw + b"=" * (-len(raw) % 4)).decode("ascii"), bytes)
    except (UnicodeError, msgspec.ValidationError):
        raise InvalidRequest(f"The {what}'s base64 is broken.", code="invalid_base64") from None


def _too_large(limit: int, what: str) -> InvalidRequest:
    return InvalidRequest(f"The {what} is larger than {limit // 2**20} MiB.")
