"""Conversations: kept in order, paged, continued by one response at a time."""

import asyncio
import json
from typing import Any

import openai
import pytest

from mellea_responses.turn import Turn
from support import oracle
from support.raw import post
from support.sdk import client_of
from support.serving import build_app, running, serving


async def echo(turn: Turn) -> str:
    await asyncio.sleep(0.02)
    return json.dumps([part.text for item in turn.items for part in getattr(item, "content", [])])


async def test_what_is_asked_and_answered_in_it_is_there_next_time() -> None:
    async with serving(echo) as url:
        client = client_of(url)
        talk = await client.conversations.create(items=[{"role": "user", "content": "a"}], metadata={"k": "v"})
        first = await client.responses.create(model="m", input="b", conversation=talk.id)
        second = await client.responses.create(model="m", input="c", conversation={"id": talk.id})
        items = [item async for item in client.conversations.items.list(talk.id, order="asc", limit=2)]

    assert talk.metadata == {"k": "v"}
    assert first.conversation is not None
    assert first.conversation.id == talk.id
    assert json.loads(second.output_text) == ["a", "b", first.output_text, "c"]
    assert [item.content[0].text for item in items] == ["a", "b", first.output_text, "c", second.output_text]
    assert len({item.id for item in items}) == 5


async def test_a_response_made_in_it_can_be_continued_by_its_id() -> None:
    async with serving(echo) as url:
        client = client_of(url)
        talk = await client.conversations.create(items=[{"role": "user", "content": "a"}])
        first = await client.responses.create(model="m", input="b", conversation=talk.id)
        second = await client.responses.create(model="m", input="c", previous_response_id=first.id)
        asked = await client.responses.input_items.list(first.id)

    assert json.loads(second.output_text) == ["a", "b", first.output_text, "c"]
    assert [item.content[0].text for item in asked.data] == ["b"]


async def test_two_responses_at_once_never_interleave() -> None:
    async with serving(echo) as url:
        client = client_of(url)
        talk = await client.conversations.create()
        answers = await asyncio.gather(
            *(client.responses.create(model="m", input=str(i), conversation=talk.id) for i in range(4)),
            return_exceptions=True,
        )
        items = [item async for item in client.conversations.items.list(talk.id, order="asc")]

    done = [answer for answer in answers if not isinstance(answer, BaseException)]
    refused = [answer for answer in answers if isinstance(answer, openai.ConflictError)]
    assert len(done) == 1
    assert len(refused) == 3
    assert {error.code for error in refused} == {"conversation_locked"}
    assert len(items) == 2


async def test_a_failed_or_cut_response_adds_nothing_and_lets_the_next_one_in() -> None:
    def serve(turn: Turn) -> str:
        if len(turn.items) == 1:
            raise RuntimeError("lost")
        return "x"

    async with serving(serve) as url:
        client = client_of(url)
        talk = await client.conversations.create()
        with pytest.raises(openai.InternalServerError):
            await client.responses.create(model="m", input="b", conversation=talk.id)
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(model="m", input=[{"type": "what"}], conversation=talk.id)
        items = await client.conversations.items.list(talk.id)
        await client.conversations.items.create(talk.id, items=[{"role": "user", "content": "a"}])
        again = await client.responses.create(model="m", input="b", conversation=talk.id)

    assert items.data == []
    assert again.output_text == "x"


async def test_items_are_created_listed_read_and_removed() -> None:
    async with serving(echo) as url:
        client = client_of(url)
        talk = await client.conversations.create()
        added = await client.conversations.items.create(
            talk.id,
            items=[
                {"role": "user", "content": "a"},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "1"},
            ],
        )
        newest = await client.conversations.items.list(talk.id, limit=1)
        after = await client.conversations.items.list(talk.id, order="asc", after=added.data[0].id)
        one = await client.conversations.items.retrieve(added.data[1].id, conversation_id=talk.id)
        await client.conversations.items.delete(added.data[0].id, conversation_id=talk.id)
        with pytest.raises(openai.NotFoundError):
            await client.conversations.items.retrieve(added.data[0].id, conversation_id=talk.id)

    assert newest.data[0].id == added.data[2].id
    assert newest.has_more
    assert [item.id for item in after.data] == [item.id for item in added.data[1:]]
    assert one.type == "function_call"


async def test_metadata_is_replaced_and_a_deleted_conversation_is_gone() -> None:
    async with serving(echo) as url:
        client = client_of(url)
        talk = await client.conversations.create(metadata={"a": "1"})
        changed = await client.conversations.update(talk.id, metadata={"b": "2"})
        deleted = await client.conversations.delete(talk.id)

        assert changed.metadata == {"b": "2"}
        assert (deleted.id, deleted.deleted) == (talk.id, True)
        for call in (
            client.conversations.retrieve(talk.id),
            client.conversations.delete(talk.id),
            client.responses.create(model="m", input="x", conversation=talk.id),
        ):
            with pytest.raises(openai.NotFoundError) as gone:
                await call
            oracle.check_error({"error": gone.value.body})


async def test_anothers_conversation_looks_like_none() -> None:
    async with serving(echo, api_keys=("a", "b")) as url:
        talk = await client_of(url, "a").conversations.create()
        errors: list[Any] = []
        for wanted in (talk.id, "conv_" + "0" * 32):
            with pytest.raises(openai.NotFoundError) as gone:
                await client_of(url, "b").conversations.retrieve(wanted)
            errors.append((gone.value.code, gone.value.message.replace(wanted, "ID")))

    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": "x"}, "items"),
        ({"items": [{"type": "what"}]}, "items[0].type"),
        ({"items": [{"type": "item_reference", "id": "x"}]}, "items[0].type"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": []}, "metadata"),
    ],
)
async def test_bad_input_is_refused_with_its_place(body: Any, param: str) -> None:
    async with serving(echo) as url:
        answer = await post(url, body, "/v1/conversations")

    assert answer.status == 400
    assert answer.error["param"] == param


async def test_a_conversation_and_a_chain_exclude_each_other() -> None:
    async with serving(echo) as url:
        body = {"input": "x", "conversation": "conv_1", "previous_response_id": "resp_1"}
        answer = await post(url, body)

    assert answer.status == 400
    assert answer.error["param"] == "previous_response_id"


async def test_metadata_counts_against_the_budget_also_when_it_is_changed() -> None:
    app = build_app(echo, store_max_bytes=20_000)
    store = app.state.service.conversation_store
    full = {str(i): "x" * 512 for i in range(16)}
    async with running(app) as url:
        client = client_of(url)
        for _ in range(10):
            made = await client.conversations.create()
            await client.conversations.update(made.id, metadata=full)
        assert store.bytes <= 20_000
        assert len(store) == 2
        await client.conversations.update(made.id, metadata={})

    assert store.bytes < 11_000


async def test_conversations_expire_and_stay_within_their_budget() -> None:
    app = build_app(echo, store_max_bytes=20_000)
    store = app.state.service.conversation_store
    async with running(app) as url:
        client = client_of(url)
        for _ in range(30):
            await client.conversations.create(items=[{"role": "user", "content": "x" * 2000}])
        assert store.bytes <= 20_000
        with pytest.raises(openai.BadRequestError):
            await client.conversations.create(items=[{"role": "user", "content": "x" * 30_000}])
        store._clock = lambda: float("inf")
        assert len(store) == 0

    assert store.bytes == 0
    assert not store._items
