"""Offers to change to another protocol than WebSocket are passed over.

Java's own client offers HTTP/2 with every plain request, and proxies pass on what they were told for WebSockets with
every method. A parser that takes it for a change of protocol loses the body.
"""

import re

_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*(?=\r\n)", re.IGNORECASE)
_OTHER = re.compile(rb"\r\nupgrade:(?![ \t]*websocket[ \t]*\r\n)[^\r\n]*(?=\r\n)", re.IGNORECASE)
_REQUEST = re.compile(rb"[A-Z]+ [^\r\n]* HTTP/1\.1\r\n")


def without_offer(data: bytes) -> bytes:
    """What came from the socket, without the header that offers it; bytes after the headers stay as they are."""
    if not _REQUEST.match(data):
        return data
    head, end, rest = data.partition(b"\r\n\r\n")
    offer = _OTHER if head.startswith(b"GET ") else _UPGRADE
    if not end or not offer.search(head + b"\r\n"):
        return data
    return offer.sub(b"", head + b"\r\n")[:-2] + end + rest
