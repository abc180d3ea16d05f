"""Ids: a prefix and random hex. They act as capabilities, so they are unguessable rather than sortable."""

import secrets

from mellea_responses.wire.items import PREFIXES

ROOT_LENGTH = 16


def new_id(prefix: str) -> str:
    """`prefix_` and 32 random hex digits (128 bits)."""
    return f"{prefix}_{secrets.token_hex(16)}"


def new_item_id(item_type: str) -> str:
    """An id for an item of this wire type."""
    return new_id(PREFIXES.get(item_type, "item"))


def new_response_id(previous: str | None = None) -> str:
    """`resp_`, 16 hex digits that name the root of the chain (for affinity), 32 random ones."""
    root = previous[5 : 5 + ROOT_LENGTH] if previous and previous.startswith("resp_") else ""
    if len(root) != ROOT_LENGTH or not all(c in "0123456789abcdef" for c in root):
        root = secrets.token_hex(ROOT_LENGTH // 2)
    return f"resp_{root}{secrets.token_hex(16)}"
