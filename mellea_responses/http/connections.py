"""What uvicorn speaks HTTP and WebSockets with."""

import contextlib
from typing import Any

from mellea_responses.http.sockets import SocketConnection
from mellea_responses.http.watch import Watch
from mellea_responses.settings import Settings

RESERVE = 256
"""Descriptors kept for files, libraries and connections that go out."""


def protocols(settings: Settings, descriptors: int | None = None) -> dict[str, Any]:
    """The protocols of one server, as options of uvicorn's `Config`.

    Args:
        settings: Every option.
        descriptors: How many descriptors the process may have; None for any number.
    """
    most = settings.max_connections
    if most is None and descriptors is not None:
        most = max(descriptors - RESERVE, descriptors // 2)
    watch = Watch(settings, most)
    chosen: dict[str, Any] = {
        "http": "auto",  # uvicorn's parser in Python, whose one time is that between two requests
        "ws": type("Socket", (SocketConnection,), {"watch": watch}),
        "ws_per_message_deflate": False,  # a small frame would unfold to gigabytes before anybody could count them
    }
    with contextlib.suppress(ImportError):  # no httptools
        from mellea_responses.http.requests import HttpConnection

        chosen["http"] = type("Http", (HttpConnection,), {"watch": watch})
    return chosen
