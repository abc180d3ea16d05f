"""Conversations as they cross the wire."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw

from mellea_responses.wire.items import Item

Metadata = Annotated[dict[str, Annotated[str, Meta(max_length=512)]], Meta(max_length=16)]


class CreateConversation(msgspec.Struct, frozen=True):
    """The body of `POST /v1/conversations`."""

    items: list[Raw] | None = None
    metadata: Metadata | None = None


class UpdateConversation(msgspec.Struct, frozen=True):
    """The body of `POST /v1/conversations/{id}`."""

    metadata: Metadata


class CreateItems(msgspec.Struct, frozen=True):
    """The body of `POST /v1/conversations/{id}/items`."""

    items: list[Raw]


class ConversationBody(msgspec.Struct, frozen=True):
    id: str
    created_at: int
    metadata: dict[str, str]
    object: Literal["conversation"] = "conversation"


class DeletedConversation(msgspec.Struct, frozen=True):
    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: bool = True


class ItemPage(msgspec.Struct, frozen=True):
    """Items just added, in the shape of a page."""

    data: list[Item]
    first_id: str
    last_id: str
    has_more: bool = False
    object: Literal["list"] = "list"
