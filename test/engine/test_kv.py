from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mellea_responses.engine.kv import PrefixStore

Tokens = tuple[int, ...]


class Fakes:
    """Caches that are the very tokens they hold, ten bytes each."""

    def __init__(self, croppable: bool = True) -> None:
        self.croppable = croppable

    def fork(self, cache: Tokens, length: int, to: int) -> Tokens:
        assert len(cache) == length
        return cache[:to]

    def can_crop(self, cache: Tokens, length: int, to: int) -> bool:
        return self.croppable or length == to

    def size(self, cache: Tokens) -> int:
        return 10 * len(cache)


def store(budget: int = 10**6, croppable: bool = True) -> PrefixStore[Tokens]:
    return PrefixStore(budget, Fakes(croppable))


def keep(kept: PrefixStore[Tokens], *turns: Sequence[int], owner: str = "ada") -> None:
    for turn in turns:
        kept.put(owner, turn, tuple(turn), None, "stop")


def reused(kept: PrefixStore[Tokens], tokens: Sequence[int], owner: str = "ada") -> Tokens:
    lease = kept.lease(owner, tokens)
    if lease is None:
        return ()
    forked = lease.fork()
    lease.release()
    return forked


def common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


turns = st.lists(st.integers(0, 2), min_size=1, max_size=6)


@given(st.lists(turns), turns)
def test_what_is_reused_is_the_longest_beginning_known_and_leaves_a_token_to_feed(
    known: list[list[int]], tokens: list[int]
) -> None:
    kept = store()
    keep(kept, *known)

    expected = max((min(common(turn, tokens), len(tokens) - 1) for turn in known), default=0)
    assert reused(kept, tokens) == tuple(tokens[:expected])


@given(st.lists(turns), turns)
def test_without_cropping_only_whole_turns_are_reused(known: list[list[int]], tokens: list[int]) -> None:
    kept = store(croppable=False)
    keep(kept, *known)

    whole = [len(turn) for turn in known if len(turn) < len(tokens) and tokens[: len(turn)] == turn]
    assert reused(kept, tokens) == tuple(tokens[: max(whole, default=0)])


@given(st.lists(turns), turns)
def test_nothing_is_shared_between_owners(known: list[list[int]], tokens: list[int]) -> None:
    kept = store()
    keep(kept, *known, owner="ada")

    assert reused(kept, tokens, owner="bob") == ()
    assert kept.traces("bob") == []


@given(st.lists(turns), st.integers(0, 150))
def test_the_budget_is_kept(known: list[list[int]], budget: int) -> None:
    kept = store(budget)

    for turn in known:
        keep(kept, turn)

        assert kept.counts()["bytes"] <= budget


@given(st.lists(turns))
def test_no_entry_is_the_beginning_of_another(known: list[list[int]]) -> None:
    kept = store()
    keep(kept, *known)

    leaves = {tuple(a) for a in known} - {tuple(b[:n]) for b in known for n in range(len(b))}
    assert kept.counts()["snapshots"] == len(leaves)


def test_a_chain_of_a_thousand_turns_is_one_entry() -> None:
    kept = store()

    for length in range(1, 1001):
        keep(kept, range(length))

    assert kept.counts()["snapshots"] == 1
    assert kept.counts()["dropped: continued"] == 999


def test_the_longest_unused_goes_first() -> None:
    kept = store(60)
    keep(kept, [1, 1, 1], [2, 2, 2])
    reused(kept, [1, 1, 1, 1])

    keep(kept, [3, 3, 3])

    assert reused(kept, [1, 1, 1, 1]) == (1, 1, 1)
    assert reused(kept, [2, 2, 2, 2]) == ()
    assert kept.counts()["dropped: budget"] == 1


def test_a_leased_entry_stays_until_it_is_released() -> None:
    kept = store(30)
    keep(kept, [1, 1, 1])
    lease = kept.lease("ada", [1, 1, 1, 1])
    assert lease is not None

    keep(kept, [2, 2, 2])

    assert lease.fork() == (1, 1, 1)
    assert kept.counts()["leases"] == 1
    lease.release()
    lease.release()
    assert kept.counts()["leases"] == 0
    assert kept.counts()["bytes"] <= 30


def test_a_released_lease_gives_no_cache() -> None:
    kept = store()
    keep(kept, [1, 1])
    lease = kept.lease("ada", [1, 1, 1])
    assert lease is not None
    lease.release()

    with pytest.raises(AssertionError):
        lease.fork()


def test_what_is_larger_than_the_budget_pushes_nothing_out() -> None:
    kept = store(30)
    keep(kept, [1, 1, 1])

    keep(kept, [2] * 4)

    assert reused(kept, [1, 1, 1, 1]) == (1, 1, 1)
    assert kept.counts()["dropped: too large"] == 1


def test_a_budget_of_nothing_keeps_nothing() -> None:
    kept = store(0)

    keep(kept, [1, 1])

    assert kept.counts()["snapshots"] == 0


def test_a_cache_that_cannot_be_cut_keeps_its_earlier_checkpoints() -> None:
    kept = store(croppable=False)

    keep(kept, [1, 2], [1, 2, 3])

    assert reused(kept, [1, 2, 9]) == (1, 2)


def test_what_is_leased_is_neither_cleared_nor_replaced_by_its_continuation() -> None:
    kept = store()
    keep(kept, [1, 2])
    lease = kept.lease("ada", [1, 2, 3])
    assert lease is not None

    keep(kept, [1, 2, 3, 4])
    kept.clear("closed")

    assert kept.counts()["leases"] == kept.counts()["snapshots"] == 1
    assert lease.fork() == (1, 2)
