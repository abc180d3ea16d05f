"""What every store promises, whoever keeps the bytes."""

from typing import Any

import pytest
from msgspec.structs import replace

from mellea_responses.store import ParentMissing, Record, Segment, Store, StoreFull
from mellea_responses.wire import items as w

Clock = Any  # the fixture's


def message(own_id: str, text: str = "hi") -> w.Message:
    return w.Message(own_id, "completed", "user", [w.InputText(text)])


def record(
    response_id: str, owner: str = "ada", status: str = "completed", body: bytes = b"{}", rev: int = 0
) -> Record:
    return Record(
        id=response_id,
        owner=owner,
        status=status,  # type: ignore[arg-type]  # one of the statuses
        body=body,
        inputs=1,
        base=b"{}",
        said=b"",
        ids=("msg_1",),
        times=(5,),
        view="content",
        rev=rev,
    )


def segment(response_id: str, *items: w.Item, parent: str | None = None) -> Segment:
    return Segment(response_id, parent, items or (message(f"msg_{response_id}"),))


async def keep(
    store: Store, response_id: str, *items: w.Item, parent: str | None = None, owner: str = "ada", ttl: float = 60
) -> None:
    await store.put(record(response_id, owner), segment(response_id, *items, parent=parent), ttl)


async def test_what_was_put_is_got_back(store: Store) -> None:
    await keep(store, "r1")

    assert await store.get("ada", "r1") == record("r1")
    assert await store.segment("ada", "r1") == segment("r1")
    assert await store.history("ada", "r1") == segment("r1").items


async def test_items_of_every_kind_come_back_as_they_were(store: Store) -> None:
    items: tuple[w.Item, ...] = (
        message("msg_1", "é \N{GRINNING FACE} \x00 \u2028"),
        w.Reasoning("rs_1", content=[w.ReasoningText("hm")], status="completed"),
        w.FunctionCall("fc_1", "call_1", "f", '{"a": 1}', "completed", "ns"),
        w.FunctionCallOutput("fco_1", "call_1", [w.InputText("out"), w.InputImage("data:image/png;base64,AA==")]),
        w.CustomToolCall("ctc_1", "call_2", "free", "text", "incomplete"),
        w.CustomToolCallOutput("ctco_1", "call_2", "out"),
        w.ToolSearchCall("tsc_1", None, {"q": [1, None]}, "completed"),
        w.ToolSearchOutput("tso_1", None, [{"type": "function", "name": "g"}]),
        w.AdditionalTools("at_1", [{"type": "function", "name": "h"}]),
        w.Compaction("cmp_1", "sealed"),
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"deep": [{"er": None}]}},
    )

    await keep(store, "r1", *items)

    assert await store.history("ada", "r1") == items
    for item in items:
        assert await store.find_item("ada", w.item_id(item) or "") == item


async def test_an_unknown_id_is_nothing(store: Store) -> None:
    assert await store.get("ada", "r1") is None
    assert await store.segment("ada", "r1") is None
    assert await store.history("ada", "r1") is None
    assert await store.find_item("ada", "msg_r1") is None
    assert await store.find_call("ada", "call_1") is None
    assert not await store.delete("ada", "r1")


async def test_another_owner_s_response_looks_like_one_that_never_was(store: Store) -> None:
    await keep(store, "r1", w.FunctionCall("fc_1", "call_1", "f", "{}", "completed"))

    assert await store.get("eve", "r1") is None
    assert await store.segment("eve", "r1") is None
    assert await store.history("eve", "r1") is None
    assert await store.find_item("eve", "fc_1") is None
    assert await store.find_call("eve", "call_1") is None
    assert not await store.delete("eve", "r1")
    with pytest.raises(ParentMissing):
        await keep(store, "r2", parent="r1", owner="eve")
    assert await store.get("ada", "r1")


async def test_two_owners_may_have_the_same_ids(store: Store) -> None:
    for owner in ("ada", "eve"):
        await keep(store, "r1", message("msg_1", owner), owner=owner)

    assert await store.delete("ada", "r1")
    assert await store.find_item("ada", "msg_1") is None
    assert await store.find_item("eve", "msg_1") == message("msg_1", "eve")


async def test_a_deleted_response_is_gone_and_deleting_it_again_says_so(store: Store) -> None:
    await keep(store, "r1")

    assert await store.delete("ada", "r1")
    assert not await store.delete("ada", "r1")
    assert await store.get("ada", "r1") is None
    assert await store.find_item("ada", "msg_r1") is None


async def test_a_response_lives_until_its_time_is_over_and_not_a_second_longer(store: Store, clock: Clock) -> None:
    await keep(store, "r1", ttl=60)

    clock.now += 59.9
    assert await store.get("ada", "r1")
    clock.now += 0.1
    assert await store.get("ada", "r1") is None
    assert await store.segment("ada", "r1") is None
    assert await store.history("ada", "r1") is None
    assert await store.find_item("ada", "msg_r1") is None
    assert not await store.delete("ada", "r1")


async def test_a_chain_is_read_oldest_first(store: Store) -> None:
    await keep(store, "r1", message("a"), message("b"))
    await keep(store, "r2", message("c"), parent="r1")
    await keep(store, "r3", message("d"), parent="r2")

    assert await store.history("ada", "r3") == tuple(map(message, "abcd"))
    assert await store.history("ada", "r2") == tuple(map(message, "abc"))


async def test_two_branches_stand_on_one_trunk(store: Store) -> None:
    await keep(store, "r1", message("a"))
    await keep(store, "left", message("l"), parent="r1")
    await keep(store, "right", message("r"), parent="r1")

    assert await store.delete("ada", "left")
    assert await store.history("ada", "right") == (message("a"), message("r"))


async def test_a_child_keeps_working_when_its_parent_is_deleted_or_expires(store: Store, clock: Clock) -> None:
    await keep(store, "r1", message("a"), ttl=10)
    await keep(store, "r2", message("b"), parent="r1", ttl=10)
    await keep(store, "r3", message("c"), parent="r2", ttl=60)

    assert await store.delete("ada", "r2")
    clock.now += 20

    assert await store.history("ada", "r3") == tuple(map(message, "abc"))
    assert await store.find_item("ada", "a") == message("a")
    assert await store.get("ada", "r1") is None


async def test_a_segment_whose_parent_is_gone_is_refused(store: Store) -> None:
    await keep(store, "r1")
    await store.delete("ada", "r1")

    with pytest.raises(ParentMissing):
        await keep(store, "r2", parent="r1")
    assert await store.get("ada", "r2") is None


async def test_an_item_that_stands_in_two_responses_is_found_as_long_as_one_of_them_is_there(store: Store) -> None:
    await keep(store, "r1", message("shared", "old"))
    await keep(store, "r2", message("shared", "new"))

    assert await store.find_item("ada", "shared") == message("shared", "new")
    await store.delete("ada", "r2")
    assert await store.find_item("ada", "shared") == message("shared", "old")


async def test_a_call_is_found_by_its_call_id_and_an_output_is_not(store: Store) -> None:
    call = w.CustomToolCall("ctc_1", "call_1", "free", "x", "completed")
    await keep(store, "r1", w.FunctionCallOutput("fco_1", "call_1", "x"), call)
    await keep(store, "r2", w.FunctionCallOutput("fco_2", "call_2", "x"))

    assert await store.find_call("ada", "call_1") == call
    assert await store.find_call("ada", "call_2") is None


async def test_a_response_that_is_not_over_is_replaced(store: Store) -> None:
    await store.put(record("r1", status="in_progress"), segment("r1", message("a")), 60)

    done = record("r1", body=b'{"done":1}', rev=1)
    assert await store.replace(done, segment("r1", message("a"), message("b")), 60, expect_rev=0)
    assert await store.get("ada", "r1") == done
    assert await store.history("ada", "r1") == (message("a"), message("b"))


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled"])
async def test_a_response_that_is_over_is_never_overwritten(store: Store, status: str) -> None:
    over = record("r1", status=status)
    await store.put(over, segment("r1"), 60)

    assert not await store.replace(record("r1", body=b"later", rev=1), segment("r1"), 60, expect_rev=0)
    assert await store.get("ada", "r1") == over


async def test_of_two_writers_the_second_learns_that_it_was_too_late(store: Store) -> None:
    queued = record("r1", status="queued")
    await store.put(queued, segment("r1"), 60)
    running = replace(queued, status="in_progress", rev=1)

    assert await store.replace(running, segment("r1"), 60, expect_rev=0)
    assert not await store.replace(running, segment("r1"), 60, expect_rev=0)


@pytest.mark.parametrize("gone", ["unknown", "expired", "deleted", "other owner"])
async def test_nothing_that_is_gone_comes_back_by_a_replace(store: Store, clock: Clock, gone: str) -> None:
    if gone != "unknown":
        await store.put(record("r1", status="queued"), segment("r1"), 60)
    if gone == "expired":
        clock.now += 60
    if gone == "deleted":
        await store.delete("ada", "r1")
    owner = "eve" if gone == "other owner" else "ada"

    assert not await store.replace(record("r1", owner), segment("r1"), 60, expect_rev=0)
    assert await store.get(owner, "r1") is None


async def test_a_replaced_response_keeps_the_chain_that_only_it_stands_on(store: Store) -> None:
    await keep(store, "r1", message("a"))
    await store.put(record("r2", status="queued"), segment("r2", message("b"), parent="r1"), 60)
    await store.delete("ada", "r1")

    assert await store.replace(record("r2", rev=1), segment("r2", message("b"), parent="r1"), 60, expect_rev=0)
    assert await store.history("ada", "r2") == (message("a"), message("b"))


async def test_what_is_larger_than_the_whole_store_is_refused_and_nothing_is_dropped_for_it(store: Store) -> None:
    await keep(store, "small")

    with pytest.raises(StoreFull):
        await store.put(record("huge", body=b"x" * 2**21), segment("huge"), 60)
    with pytest.raises(StoreFull):
        await keep(store, "huge", message("m", "x" * 2**21))
    assert await store.get("ada", "huge") is None
    assert await store.get("ada", "small")


async def test_the_oldest_responses_make_room(store: Store) -> None:
    for n in range(40):
        await keep(store, f"r{n}", message(f"m{n}", "x" * 2**16))

    there = [n for n in range(40) if await store.get("ada", f"r{n}")]
    assert there
    assert there == list(range(there[0], 40))
    assert there[0] > 20
    assert await store.find_item("ada", "m0") is None


async def test_a_response_that_is_not_over_is_never_dropped_for_room(store: Store) -> None:
    await store.put(record("running", status="in_progress"), segment("running"), 60)
    for n in range(40):
        await keep(store, f"r{n}", message(f"m{n}", "x" * 2**16))

    assert await store.get("ada", "running")
