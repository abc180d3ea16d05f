"""The use cases of conversations, one short function each."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from msgspec import Raw
from msgspec.structs import replace

from mellea_responses.errors import Conflict, InvalidRequest, NotFound
from mellea_responses.ids import new_id
from mellea_responses.links import essence
from mellea_responses.media.parts import check_media
from mellea_responses.normalize.items import Reference, Trigger, normalize_input
from mellea_responses.pages import page
from mellea_responses.store import StoreFull
from mellea_responses.store.conversations import Conversation, ConversationStore
from mellea_responses.wire.conversations import ConversationBody
from mellea_responses.wire.items import Item, item_id
from mellea_responses.wire.request import ConversationParam
from mellea_responses.wire.response import ItemList


class Conversations:
    """Everything a client can do with conversations.

    Args:
        store: Where they live.
    """

    def __init__(self, store: ConversationStore) -> None:
        self._store = store
        self._taken: set[tuple[str, str]] = set()

    async def create(self, owner: str, raws: Sequence[Raw] | None, metadata: dict[str, str] | None) -> ConversationBody:
        """A new conversation, with items or without.

        Raises:
            InvalidRequest: an item or the metadata is wrong, or it is larger than the whole store.
        """
        check_metadata(metadata)
        conversation = Conversation(
            id=new_id("conv"), owner=owner, created_at=int(time.time()), metadata=metadata or {}, items=_items(raws)
        )
        await self._save(conversation, None)
        return _body(conversation)

    async def retrieve(self, owner: str, conversation_id: str) -> ConversationBody:
        """The conversation without its items.

        Raises:
            NotFound: unknown, expired, deleted or another owner's.
        """
        return _body(await self.load(owner, conversation_id))

    async def update(self, owner: str, conversation_id: str, metadata: dict[str, str]) -> ConversationBody:
        """Replaces the metadata."""
        check_metadata(metadata)
        conversation = await self.load(owner, conversation_id)
        changed = replace(conversation, metadata=metadata)
        await self._save(changed, conversation.rev)
        return _body(changed)

    async def delete(self, owner: str, conversation_id: str) -> None:
        """Forgets the conversation; responses made in it stay."""
        if not await self._store.delete(owner, conversation_id):
            raise _unknown(conversation_id)

    async def add_items(self, owner: str, conversation_id: str, raws: Sequence[Raw]) -> list[Item]:
        """Appends items; those without an id get one."""
        conversation = await self.load(owner, conversation_id)
        self._check_free(owner, conversation_id)
        added = _new_items(_items(raws), conversation.items)
        changed = replace(conversation, items=conversation.items + added, leaf=None if added else conversation.leaf)
        await self._save(changed, conversation.rev)
        return list(added)

    async def list_items(
        self, owner: str, conversation_id: str, *, after: str | None, limit: int, order: str
    ) -> ItemList:
        """One page of items."""
        conversation = await self.load(owner, conversation_id)
        return page(list(conversation.items), after=after, before=None, limit=limit, order=order)

    async def item(self, owner: str, conversation_id: str, wanted: str) -> Item:
        """One item."""
        conversation = await self.load(owner, conversation_id)
        for item in conversation.items:
            if item_id(item) == wanted:
                return item
        raise NotFound(f"Item '{wanted[:80]}' not found in this conversation.", code="item_not_found")

    async def remove_item(self, owner: str, conversation_id: str, wanted: str) -> ConversationBody:
        """Takes one item out."""
        conversation = await self.load(owner, conversation_id)
        self._check_free(owner, conversation_id)
        left = tuple(item for item in conversation.items if item_id(item) != wanted)
        if len(left) == len(conversation.items):
            raise NotFound(f"Item '{wanted[:80]}' not found in this conversation.", code="item_not_found")
        await self._save(replace(conversation, items=left, leaf=None), conversation.rev)
        return _body(conversation)

    # For responses.

    async def load(self, owner: str, conversation_id: str) -> Conversation:
        """The conversation with its items.

        Raises:
            NotFound: unknown, expired, deleted or another owner's.
        """
        conversation = await self._store.get(owner, conversation_id)
        if conversation is None:
            raise _unknown(conversation_id)
        return conversation

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        """An item of any of the owner's conversations."""
        return await self._store.find_item(owner, item_id)

    @contextmanager
    def held(self, owner: str, asked: str | ConversationParam | None) -> Iterator[ExitStack]:
        """Keeps other responses out of a conversation, from before it is read.

        It is free again at the end of the block; whoever empties the stack before holds on until `release`.

        Raises:
            Conflict: a response is being made in it.
        """
        with ExitStack() as stack:
            if asked is not None:
                wanted = conversation_id(asked)
                self._check_free(owner, wanted)
                self._taken.add((owner, wanted))
                stack.callback(self.release, owner, wanted)
            yield stack

    def release(self, owner: str, conversation_id: str) -> None:
        """Lets others in again."""
        self._taken.discard((owner, conversation_id))

    async def append(self, owner: str, conversation_id: str, items: tuple[Item, ...], leaf: str | None) -> None:
        """Adds what a response was asked and what it said; a conversation deleted meanwhile stays deleted."""
        conversation = await self._store.get(owner, conversation_id)
        if conversation is not None:
            grown = replace(conversation, items=conversation.items + items, leaf=leaf)
            await self._store.save(grown, expect_rev=conversation.rev)

    def _check_free(self, owner: str, conversation_id: str) -> None:
        if (owner, conversation_id) in self._taken:
            raise Conflict(
                f"A response is being made in the conversation '{conversation_id[:80]}'. Wait for its end.",
                param="conversation",
                code="conversation_locked",
            )

    async def _save(self, conversation: Conversation, expect_rev: int | None) -> None:
        try:
            kept = await self._store.save(conversation, expect_rev=expect_rev)
        except StoreFull:
            raise InvalidRequest("The conversation is larger than this server keeps.", param="items") from None
        if not kept:
            raise Conflict("The conversation was changed meanwhile. Read it again.", code="conversation_changed")


def conversation_id(asked: str | ConversationParam) -> str:
    """The id in either spelling."""
    return asked if isinstance(asked, str) else asked.id


def check_metadata(metadata: dict[str, str] | None) -> None:
    """OpenAI's limits, where the type cannot say them.

    Raises:
        InvalidRequest: a key is too long.
    """
    if any(len(key) > 64 for key in metadata or {}):
        raise InvalidRequest("Keys of metadata may have 64 characters at most.", param="metadata")


def _items(raws: Sequence[Raw] | None) -> tuple[Item, ...]:
    items = normalize_input(list(raws or ()), "items")
    check_media(items, "items", remote=True)  # whether they are fetched is for each turn to say
    for i, item in enumerate(items):
        if isinstance(item, Reference | Trigger):
            raise InvalidRequest("Only items themselves can be kept in a conversation.", param=f"items[{i}].type")
    return tuple(item for item in items if not isinstance(item, Reference | Trigger))


def _new_items(items: tuple[Item, ...], known: tuple[Item, ...]) -> tuple[Item, ...]:
    """Without those that are there already under the same id and say the same."""
    there = {item_id(item): essence(item) for item in known}
    return tuple(item for item in items if there.get(item_id(item)) != essence(item))


def _body(conversation: Conversation) -> ConversationBody:
    return ConversationBody(conversation.id, conversation.created_at, conversation.metadata)


def _unknown(conversation_id: str) -> NotFound:
    return NotFound(
        f"Conversation with id '{conversation_id[:80]}' not found.", param="conversation", code="conversation_not_found"
    )
