"""Ids: a prefix and random hex. They act as capabilities, so they are unguessable rather than sortable.

Chance is fetched for many ids at a time: each question to the system lets other threads run first, and a response has
five ids.
"""

import os
from collections import deque

from mellea_responses.wire.items import PREFIXES

ROOT_LENGTH = 16
_AT_ONCE = 128
_BYTES = 16
_tokens: deque[str] = deque()  # taking one is atomic, so no two threads get the same
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tokens.clear)


def _token() -> str:
    """32 random hex digits."""
    try:
        return _tokens.pop()
    except IndexError:
        chance = os.urandom(_AT_ONCE * _BYTES)
        _tokens.extend(chance[i : i + _BYTES].hex() for i in range(_BYTES, len(chance), _BYTES))
        return chance[:_BYTES].hex()


def new_id(prefix: str) -> str:
    """`prefix_` and 32 random hex digits (128 bits)."""
    return f"{prefix}_{_token()}"


def new_item_id(item_type: str) -> str:
    """An id for an item of this wire type."""
    return new_id(PREFIXES.get(item_type, "item"))


def new_response_id(previous: str | None = None) -> str:
    """`resp_`, 16 hex digits that name the root of the chain (for affinity), 32 random ones."""
    root = previous[5 : 5 + ROOT_LENGTH] if previous and previous.startswith("resp_") else ""
    if len(root) != ROOT_LENGTH or not all(c in "0123456789abcdef" for c in root):
        root = _token()[:ROOT_LENGTH]
    return f"resp_{root}{_token()}"
