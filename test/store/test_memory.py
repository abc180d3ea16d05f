"""What the store in this process promises beyond the port: what it costs, to the byte."""

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mellea_responses.store import MemoryStore, Record, Segment, StoreFull
from mellea_responses.wire import items as w

Clock = Any  # the fixture's


def message(own_id: str, text: str = "hi") -> w.Message:
    return w.Message(own_id, "completed", "user", [w.InputText(text)])


def call(call_id: str) -> w.FunctionCall:
    return w.FunctionCall(f"fc_{call_id}", call_id, "f", "{}", "completed")


def record(
    response_id: str, owner: str = "ada", status: str = "completed", body: bytes = b"{}", rev: int = 0
) -> Record:
    return Record(
        id=response_id, owner=owner, status=status, body=body, inputs=1, base=b"{}", said=b"", ids=(), times=(),
        view="content", rev=rev,
    )  # type: ignore[arg-type]  # one of the statuses  # fmt: skip


async def chain(store: MemoryStore, length: int, ttl: float = 60) -> None:
    for n in range(length):
        items = (message(f"q{n}"), call(f"call_{n}"))
        await store.put(record(f"r{n}"), Segment(f"r{n}", f"r{n - 1}" if n else None, items), ttl)


def emptied(store: MemoryStore) -> bool:
    return (len(store), store.segments, store.bytes, store._items, store._calls) == (0, 0, 0, {}, {})


async def test_expired_bytes_are_freed_without_anybody_asking(clock: Clock) -> None:
    store = MemoryStore(2**20, 100, clock)
    await store.put(record("later"), Segment("later", None, (message("l"),)), 3600)
    await store.put(record("soon"), Segment("soon", None, (message("s"), call("call_1"))), 0.01)
    kept = MemoryStore(2**20, 100, clock)
    await kept.put(record("later"), Segment("later", None, (message("l"),)), 3600)

    clock.now += 1
    while len(store) > 1:  # noqa: ASYNC110  # nothing tells that the sweep has run
        await asyncio.sleep(0.001)

    assert (store.bytes, store.segments) == (kept.bytes, kept.segments)
    assert store._calls == {}
    await store.close()
    await kept.close()


async def test_a_whole_chain_expires_to_exactly_nothing(clock: Clock) -> None:
    store = MemoryStore(2**24, 5000, clock)
    await chain(store, 1000, ttl=10)

    clock.now += 10
    assert await store.find_item("ada", "q0") is None

    assert emptied(store)
    await store.close()


async def test_a_deleted_chain_leaves_exactly_nothing(clock: Clock) -> None:
    store = MemoryStore(2**24, 5000, clock)
    await chain(store, 50)

    for n in range(50):
        assert await store.delete("ada", f"r{n}")

    assert emptied(store)
    await store.close()


async def test_a_chain_of_a_thousand_turns_costs_its_items_once(clock: Clock) -> None:
    store = MemoryStore(2**24, 5000, clock)
    sizes = []
    for length in (100, 1000):
        await store.close()
        await chain(store, length)
        sizes.append(store.bytes)

    assert (len(store), store.segments) == (1000, 1000)
    assert sizes[1] < 10 * sizes[0] * 1.05
    await store.close()


async def test_continuing_a_chain_copies_no_item(clock: Clock) -> None:
    store = MemoryStore(2**24, 5000, clock)
    first = tuple(message(f"m{n}") for n in range(10))
    await store.put(record("r1"), Segment("r1", None, first), 60)
    await store.put(record("r2"), Segment("r2", "r1", (message("last"),)), 60)

    history = await store.history("ada", "r2")

    assert history is not None
    assert all(one is other for one, other in zip(history, first, strict=False))
    assert await store.find_item("ada", "m3") is first[3]
    await store.close()


async def test_a_chain_longer_than_the_stack_is_deep_goes_at_once(clock: Clock) -> None:
    store = MemoryStore(2**26, 50_000, clock)
    await chain(store, 5000)
    for n in range(4999):
        await store.delete("ada", f"r{n}")
    assert store.segments == 5000

    await store.delete("ada", "r4999")

    assert emptied(store)
    await store.close()


async def test_the_number_of_records_has_a_limit_of_its_own(clock: Clock) -> None:
    store = MemoryStore(2**20, 3, clock)
    for n in range(10):
        await store.put(record(f"r{n}"), Segment(f"r{n}", None, (message(f"m{n}"),)), 60)

    assert len(store) == 3
    assert [n for n in range(10) if await store.get("ada", f"r{n}")] == [7, 8, 9]
    await store.close()


async def test_a_chain_that_outgrows_the_whole_budget_is_refused_before_others_are_dropped_for_it(clock: Clock) -> None:
    store = MemoryStore(20_000, 100, clock)
    await store.put(record("other"), Segment("other", None, (message("o"),)), 60)

    with pytest.raises(StoreFull):
        await chain(store, 100)

    assert store.bytes <= 20_000
    assert await store.get("ada", "r0") is None or store.segments < 100
    await store.close()


async def test_what_was_deleted_before_its_time_leaves_no_deadlines_behind(clock: Clock) -> None:
    store = MemoryStore(2**20, 100, clock)
    for n in range(1000):
        await store.put(record(f"r{n}"), Segment(f"r{n}", None, (message(f"m{n}"),)), 3600)
        await store.delete("ada", f"r{n}")

    assert len(store._deadlines) < 100
    await store.close()


async def test_closing_forgets_everything_and_leaves_no_timer(clock: Clock) -> None:
    store = MemoryStore(2**20, 100, clock)
    await chain(store, 3)

    await store.close()

    assert emptied(store)
    assert store._timer is None


# ---------------------------------------------------------------- against a naive model

OWNERS = ("ada", "eve")
PLACES = st.integers(0, 7)  # among the ids that an owner has had, from the newest back
BUDGET = 6_000


class AgainstAModel(RuleBasedStateMachine):
    """The store beside a model that copies whole histories and knows nothing of segments."""

    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.loop = asyncio.new_event_loop()
        self.store = MemoryStore(BUDGET, 6, lambda: self.now)
        self.count = 0
        self.records: dict[tuple[str, str], tuple[Record, float, tuple[w.Item, ...]]] = {}
        self.order: list[tuple[str, str]] = []

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.do(self.store.close())
            self.loop.close()

    def do(self, work):  # type: ignore[no-untyped-def]  # whatever the coroutine gives
        return self.loop.run_until_complete(work)

    def there(self, key: tuple[str, str]) -> bool:
        return key in self.records and self.now < self.records[key][1]

    def items(self, shared: bool) -> tuple[w.Item, ...]:
        self.count += 1
        own = message("shared" if shared else f"m{self.count}", f"{self.count}")
        return (own, call(f"call_{self.count % 5}"))

    def an_id(self, owner: str, place: int) -> str:
        """One that the owner has had, or one that never was."""
        known = [own_id for one, own_id in self.order if one == owner]
        return known[-1 - place] if place < len(known) else "r0"

    @rule(
        owner=st.sampled_from(OWNERS),
        parent=st.none() | PLACES,
        ttl=st.sampled_from([1, 5, 50]),
        size=st.integers(0, 1500),
        shared=st.booleans(),
        over=st.booleans(),
    )
    def put(self, owner: str, parent: int | None, ttl: float, size: int, shared: bool, over: bool) -> None:
        items, own_id = self.items(shared), f"r{self.count}"
        before = None if parent is None else self.an_id(owner, parent)
        if before is not None and not self.there((owner, before)):
            before = None
        made = record(own_id, owner, "completed" if over else "queued", b"x" * size)
        history = (self.records[owner, before][2] if before else ()) + items
        try:
            self.do(self.store.put(made, Segment(own_id, before, items), ttl))
        except StoreFull:
            return
        self.records[owner, own_id] = (made, self.now + ttl, history)
        self.order.append((owner, own_id))
        self.follow_evictions((owner, own_id))

    def follow_evictions(self, kept: tuple[str, str]) -> None:
        """Which go is the store's to say, but only finished ones may, the oldest first."""
        known = [key for key in self.order if self.there(key)]
        gone = [key for key in known if self.do(self.store.get(*key)) is None]
        finished = [key for key in known if self.records[key][0].terminal and key != kept]
        assert gone == finished[: len(gone)]
        for key in gone:
            del self.records[key]

    @rule(owner=st.sampled_from(OWNERS), place=PLACES)
    def delete(self, owner: str, place: int) -> None:
        key = owner, own_id = owner, self.an_id(owner, place)
        assert self.do(self.store.delete(owner, own_id)) == self.there(key)
        self.records.pop(key, None)

    @rule(owner=st.sampled_from(OWNERS), place=PLACES, rev=st.integers(0, 1))
    def replace(self, owner: str, place: int, rev: int) -> None:
        key = owner, own_id = owner, self.an_id(owner, place)
        expected = self.there(key) and not self.records[key][0].terminal and self.records[key][0].rev == rev
        made, segment = record(own_id, owner, rev=rev + 1), self.do(self.store.segment(owner, own_id))
        done = self.do(self.store.replace(made, segment or Segment(own_id, None, ()), 50, expect_rev=rev))
        assert done == expected
        if done:
            self.records[key] = (made, self.now + 50, self.records[key][2])
            self.order.remove(key)
            self.order.append(key)
            self.follow_evictions(key)

    @rule(seconds=st.sampled_from([1, 4, 60]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: hasattr(self, "store"))
    @rule()
    def sweep(self) -> None:
        self.do(self.store.find_item("ada", ""))
        self.records = {key: value for key, value in self.records.items() if self.there(key)}
        if not self.records:
            assert emptied(self.store)

    @invariant()
    def every_record_and_history_is_the_model_s(self) -> None:
        for key in self.order:
            known = self.records[key] if self.there(key) else None
            assert self.do(self.store.get(*key)) == (known[0] if known else None)
            assert self.do(self.store.history(*key)) == (known[2] if known else None)

    @invariant()
    def every_item_of_a_living_history_is_found(self) -> None:
        for owner in OWNERS:
            living = [items for key, (_, _, items) in self.records.items() if key[0] == owner and self.there(key)]
            alive = {w.item_id(item) for items in living for item in items}
            names = {f"m{n}" for n in range(self.count + 1)} | {f"fc_call_{n}" for n in range(5)} | {"shared"}
            found = {name for name in names if self.do(self.store.find_item(owner, name)) is not None}
            assert found == alive

    @invariant()
    def the_bytes_are_those_of_what_is_there(self) -> None:
        nodes = sum(node.size for node in self.store._nodes.values())
        assert self.store.bytes == nodes + sum(entry.record.size for entry in self.store._entries.values())


AgainstAModel.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestTheStoreAgainstANaiveModel = AgainstAModel.TestCase
