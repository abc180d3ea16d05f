"""Conversations of many turns: each turn feeds what is new, and the store keeps to its bytes."""

from collections.abc import Callable
from typing import Any

import pytest
from engine.tiny import Scripted, ask, assistant, make_network, request, user

from mellea_responses.engine.engine import Engine
from mellea_responses.engine.request import GenerateRequest
from mellea_responses.turn import Options, Usage

Start = Callable[..., Engine]
ANSWER = Options(temperature=0.0, max_output_tokens=8)
TOKEN_BYTES = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, size, float32


@pytest.fixture
def long_winded(model: Scripted) -> Scripted:
    return Scripted(make_network(context_length=2**15), model.tokenizer, "tiny")


async def turn(engine: Engine, model: Scripted, asked: GenerateRequest) -> Usage:
    """Says `ok`, and sees that what was counted is what the model was fed."""
    model.say("ok")
    steps = await ask(engine, asked)
    usage = steps[-2]
    assert isinstance(usage, Usage)
    prompt = sum(map(len, model.fed)) - (usage.output_tokens - 1)
    assert usage.input_tokens - usage.cached_tokens == prompt == asked.notes["new"]
    return usage


@pytest.mark.parametrize("turns", [150, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
async def test_a_long_chain_feeds_only_what_is_new_and_stays_in_its_budget(
    started: Start, long_winded: Scripted, turns: int
) -> None:
    budget = (18 * turns + 1500) * TOKEN_BYTES
    engine = started(long_winded, kv_cache_bytes=budget, chunk=2048)
    history: list[dict[str, Any]] = []
    held = largest = 0
    for number in range(turns):
        if number % (turns // 10) == 5:
            # Somebody else, whose cache must give way before the chain's does.
            await turn(engine, long_winded, request(user(f"{number} hello the cat " * 100), owner="other"))
        asked = request(*history, user("on"), options=ANSWER)
        usage = await turn(engine, long_winded, asked)
        counts = engine.counts()

        assert usage.cached_tokens == held, number
        assert asked.notes["match"] == ("exact" if number else "none")
        assert counts["bytes"] <= budget
        assert counts["leases"] == counts["rows"] == counts["waiting"] == 0
        held = usage.input_tokens + usage.output_tokens - 1
        largest = max(largest, counts["snapshots"])
        history = [*asked.messages, assistant("ok")]

    counts = engine.counts()
    assert largest > 1
    assert counts["dropped: continued"] >= turns - 1
    assert counts["dropped: budget"] > 0
    assert "dropped: too large" not in counts
    assert len(engine._store.traces("")) == 1


async def test_a_chain_that_outgrows_the_budget_goes_on_from_the_longest_that_fitted(
    started: Start, long_winded: Scripted
) -> None:
    budget = 1000 * TOKEN_BYTES
    engine = started(long_winded, kv_cache_bytes=budget, chunk=2048)
    history: list[dict[str, Any]] = []
    cached, counts = [], {}
    for number in range(120):
        asked = request(*history, user(f"on {number}"), options=ANSWER)
        cached.append((await turn(engine, long_winded, asked)).cached_tokens)
        counts = engine.counts()

        assert counts["bytes"] <= budget
        assert counts["leases"] == 0
        history = [*asked.messages, assistant("ok")]

    assert cached == sorted(cached)
    assert cached[-1] == cached[-2] > 500
    assert counts["snapshots"] == 1
    assert counts["dropped: too large"] > 0


async def test_many_branches_off_one_history_stay_in_the_budget_and_count_truly(
    started: Start, long_winded: Scripted
) -> None:
    budget = 3000 * TOKEN_BYTES
    engine = started(long_winded, kv_cache_bytes=budget, chunk=2048)
    first = request(user("hello the cat " * 60), options=ANSWER)
    usage = await turn(engine, long_winded, first)
    held = usage.input_tokens + usage.output_tokens - 1
    for number in range(100):
        asked = request(*first.messages, assistant("ok"), user(f"{number} way"), options=ANSWER)
        usage = await turn(engine, long_winded, asked)
        counts = engine.counts()

        assert usage.cached_tokens >= held
        assert asked.notes["match"] == "exact"
        assert counts["bytes"] <= budget
        assert counts["leases"] == 0

    assert counts["dropped: budget"] > 0
