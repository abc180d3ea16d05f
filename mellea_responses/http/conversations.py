"""The routes of `/v1/conversations`. Each also answers without `/v1`."""

from litestar import Response, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, RawBody

from mellea_responses.http.body import json_body
from mellea_responses.http.paths import paths
from mellea_responses.http.query import number, one_of
from mellea_responses.http.responses import AnyRequest, json_answer, owner_of
from mellea_responses.service import Service
from mellea_responses.wire.conversations import (
    CreateConversation,
    CreateItems,
    DeletedConversation,
    ItemPage,
    UpdateConversation,
)
from mellea_responses.wire.decode import decode
from mellea_responses.wire.items import Item, item_id

Desk = NamedDependency[Service]
CONVERSATION = "/conversations/{conversation_id:str}"


@post(paths("/conversations"), status_code=200, name="create_conversation")
async def create(request: AnyRequest, body: RawBody, service: Desk) -> Response[bytes]:
    """A new conversation, with items or without."""
    plain = json_body(request, body, service.settings.max_body_bytes)
    asked = decode(plain or b"{}", CreateConversation)
    made = await service.conversations.create(owner_of(request), asked.items, asked.metadata)
    return json_answer(made, request)


@get(paths(CONVERSATION), name="get_conversation")
async def retrieve(request: AnyRequest, conversation_id: FromPath[str], service: Desk) -> Response[bytes]:
    """A conversation without its items."""
    return json_answer(await service.conversations.retrieve(owner_of(request), conversation_id), request)


@post(paths(CONVERSATION), status_code=200, name="update_conversation")
async def update(request: AnyRequest, conversation_id: FromPath[str], body: RawBody, service: Desk) -> Response[bytes]:
    """Replaces the metadata."""
    asked = decode(json_body(request, body, service.settings.max_body_bytes), UpdateConversation)
    changed = await service.conversations.update(owner_of(request), conversation_id, asked.metadata)
    return json_answer(changed, request)


@delete(paths(CONVERSATION), status_code=200, name="delete_conversation")
async def remove(request: AnyRequest, conversation_id: FromPath[str], service: Desk) -> Response[bytes]:
    """Forgets a conversation; responses made in it stay."""
    await service.conversations.delete(owner_of(request), conversation_id)
    return json_answer(DeletedConversation(conversation_id), request)


@post(paths(f"{CONVERSATION}/items"), status_code=200, name="create_conversation_items")
async def add_items(
    request: AnyRequest, conversation_id: FromPath[str], body: RawBody, service: Desk
) -> Response[bytes]:
    """Appends items; those without an id get one."""
    asked = decode(json_body(request, body, service.settings.max_body_bytes), CreateItems)
    items = await service.conversations.add_items(owner_of(request), conversation_id, asked.items)
    return json_answer(_page(items), request)


@get(paths(f"{CONVERSATION}/items"), name="list_conversation_items")
async def list_items(
    request: AnyRequest,
    conversation_id: FromPath[str],
    service: Desk,
    after: FromQuery[str | None] = None,
    limit: FromQuery[str | None] = None,
    order: FromQuery[str | None] = None,
) -> Response[bytes]:
    """The items, newest first unless `order=asc`."""
    listed = await service.conversations.list_items(
        owner_of(request),
        conversation_id,
        after=after,
        limit=number(limit, "limit", 1, 100, default=20),
        order=one_of(order, "order", ("desc", "asc")),
    )
    return json_answer(listed, request)


@get(paths(f"{CONVERSATION}/items/{{item:str}}"), name="get_conversation_item")
async def item(
    request: AnyRequest, conversation_id: FromPath[str], item: FromPath[str], service: Desk
) -> Response[bytes]:
    """One item."""
    return json_answer(await service.conversations.item(owner_of(request), conversation_id, item), request)


@delete(paths(f"{CONVERSATION}/items/{{item:str}}"), status_code=200, name="delete_conversation_item")
async def remove_item(
    request: AnyRequest, conversation_id: FromPath[str], item: FromPath[str], service: Desk
) -> Response[bytes]:
    """Takes one item out of a conversation."""
    left = await service.conversations.remove_item(owner_of(request), conversation_id, item)
    return json_answer(left, request)


def _page(items: list[Item]) -> ItemPage:
    first, last = (item_id(items[0]) or "", item_id(items[-1]) or "") if items else ("", "")
    return ItemPage(items, first, last)


ROUTES = [create, retrieve, update, remove, add_items, list_items, item, remove_item]
