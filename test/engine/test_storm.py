"""Many requests that are cancelled at every kind of moment leave no lease, row, cache or thread behind."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from engine.tiny import Readable, ask, request, text_of, user

from mellea_responses.engine.engine import Engine
from mellea_responses.engine.request import GenerateRequest
from mellea_responses.turn import Options, Stop, Text, Usage

Start = Callable[..., Engine]
BUDGET = 2**19
PROMPT = "hello the cat sat on the mat and said hello to the world "
MOMENTS = ["before it is sent", "queued", "prompt", "answer", "end", "never"]


class Counting(Readable):
    """Cancels who waits for that when it comes to a prompt's second chunk."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.in_prompt: list[GenerateRequest] = []

    def forward(self, tokens: Sequence[int], cache: Any) -> torch.Tensor:
        logits = super().forward(tokens, cache)
        if len(tokens) > 1:
            while self.in_prompt:
                self.in_prompt.pop().cancelled.set()
        return logits


async def one(engine: Engine, model: Counting, moment: str, number: int, chance: random.Random) -> str:
    """How a request ended that was cancelled at this moment."""
    asked = request(
        user(f"{number % 7} {PROMPT * chance.randint(1, 4)}"),
        owner=str(number % 4),
        options=Options(temperature=1.0, seed=number, max_output_tokens=chance.randint(1, 12)),
    )
    if moment == "before it is sent":
        asked.cancelled.set()
    elif moment == "prompt":
        model.in_prompt.append(asked)
    answer = engine.generate(asked)
    if moment == "queued":
        waiting = asyncio.ensure_future(anext(answer, None))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await answer.aclose()
        return "left"
    steps = []
    async for batch in answer:
        steps += batch
        if moment == "answer" and any(isinstance(step, Text) for step in batch):
            asked.cancelled.set()
        if moment == "end" and isinstance(steps[-1], Stop):
            asked.cancelled.set()
            await answer.aclose()
            return "left"
    assert isinstance(steps[-1], Stop | Usage)
    return "finished" if isinstance(steps[-1], Stop) else "cancelled"


@pytest.mark.parametrize("rows", [1, 3])
async def test_two_hundred_requests_cancelled_at_any_moment_leave_nothing(
    started: Start, model: Readable, rows: int
) -> None:
    counting = Counting(model.network, model.tokenizer, "tiny")
    engine, chance = started(counting, kv_cache_bytes=BUDGET, chunk=16, rows=rows), random.Random(rows)
    expected = text_of(await ask(engine, request(user(PROMPT), owner="quiet")))
    await asyncio.to_thread(lambda: None)
    threads = threading.active_count()

    moments = [MOMENTS[number % len(MOMENTS)] for number in range(200)]
    chance.shuffle(moments)
    ends = await asyncio.gather(
        *(one(engine, counting, moment, number, chance) for number, moment in enumerate(moments))
    )
    while engine.counts()["rows"] + engine.counts()["waiting"]:  # noqa: ASYNC110  # the model thread tells nobody
        await asyncio.sleep(0.001)

    counts = engine.counts()
    found = Counter(ends)
    assert (counts["rows"], counts["waiting"], counts["leases"]) == (0, 0, 0)
    assert counts["bytes"] <= BUDGET
    assert counts["dropped: budget"] > 0
    assert all(found[end] for end in ("left", "cancelled", "finished")), found
    assert threading.active_count() <= threads + 8
    assert text_of(await ask(engine, request(user(PROMPT), owner="quiet"))) == expected


async def test_what_one_owner_said_is_nobody_else_s_beginning(started: Start, model: Readable) -> None:
    engine = started(model, chunk=2048)
    owners = [f"owner {n}" for n in range(8)]
    asked = [request(user(PROMPT), owner=owner) for owner in owners for _ in range(2)]

    await asyncio.gather(*(ask(engine, one) for one in asked))

    cached = {owner: sorted(int(one.notes["cached"]) for one in asked if one.owner == owner) for owner in owners}
    assert all(first == 0 < second for first, second in cached.values()), cached
    assert all(len(engine._store.traces(owner)) == 1 for owner in owners)
    assert {entry.owner for entry in engine._store._entries} == set(owners)
