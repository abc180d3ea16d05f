"""Offers to change to HTTP/2 are passed over.

Java's own client makes one with every plain request. A parser that takes it for a change of protocol loses the body.
"""

import re

_OFFER = re.compile(rb"\r\nupgrade:[ \t]*h2c[ \t]*(?=\r\n)", re.IGNORECASE)


def without_offer(data: bytes) -> bytes:
    """What came from the socket, without the header that offers HTTP/2; bytes after the headers stay as they are."""
    if b"h2c" not in data:
        return data
    head, end, rest = data.partition(b"\r\n\r\n")
    return _OFFER.sub(b"", head + b"\r\n")[:-2] + end + rest
