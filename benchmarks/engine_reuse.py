"""First token of the next turn without HTTP: over a kept cache, cold, and a bare forward pass of the same tokens.

    python -m benchmarks.engine_reuse

CPU time of the whole process with one thread, in one run: what the request costs from the call to its first batch of
steps, rendering and tokenising included. The cold run is the first turn of the conversation, a little shorter than the
ones it is compared with. Warm turns, each going on from the one before, bare passes, and branches off the first turn
alternate.
"""

import asyncio
import copy
import os
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.common import Row, main, row

if TYPE_CHECKING:
    from mellea_responses.engine import Engine, GenerateRequest

SENTENCE = "The ferry to the island leaves at half past {n}, and the tide at the harbour is {n} feet high. "
QUESTION = "And when exactly does the next one of them leave again?"
TARGETS = {500: 0.12, 2000: 0.04, 6000: 0.025}
BARE_TARGET = 1.15


def measure(quick: bool = False) -> Iterator[Row]:
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded
    from mellea_responses.engine import Engine

    engine = Engine.load(device="cpu", dtype="float32", progress=False)
    engine.ready()
    try:
        for length, rounds in ({100: 1} if quick else {500: 6, 2000: 6, 6000: 4}).items():
            yield from asyncio.run(_one_length(engine, length, rounds))
    finally:
        engine.close()


async def _one_length(engine: "Engine", length: int, rounds: int) -> list[Row]:
    history, owner = _conversation(engine, length), str(length)
    first = _asked(history, owner)
    cold, said = await _first_token(engine, first)
    beginning = [*history, _assistant(said)]
    held = engine._prepare(first).tokens
    lease = engine._store.lease(owner, (*held, 0))
    assert lease is not None
    cache = copy.deepcopy(lease.fork())
    lease.release()
    warm, plain, branch, new = [], [], [], 0
    for i in range(rounds):
        history = [*history, _assistant(said), {"role": "user", "content": QUESTION}]
        request = _asked(history, owner)
        tokens = engine._prepare(request).tokens
        began = time.process_time()
        engine._model.forward(tokens[len(held) :], cache)
        plain.append(time.process_time() - began)
        held, new = tokens, len(tokens) - len(held)
        spent, said = await _first_token(engine, request)
        warm.append(spent)
        assert request.notes["new"] == new, request.notes
        other = {"role": "user", "content": f"{('No', 'Yes', 'Well', 'So', 'Then', 'Now')[i % 6]}, {QUESTION}"}
        branch.append((await _first_token(engine, _asked([*beginning, other], owner)))[0])
    size, middle = first.notes["new"], statistics.median
    name, target = f"engine alone, {size} tokens", TARGETS.get(length)
    note = f"{new} new: {middle(warm):.3f} s, cold {cold:.2f} s"
    ratios = [spent / passed for spent, passed in zip(warm, plain, strict=True)]
    return [
        row(f"{name}, next turn, cold turn = 1", [spent / cold for spent in warm], target, note=note),
        row(f"{name}, next turn, bare pass = 1", ratios, BARE_TARGET, note=f"pass {middle(plain):.3f} s"),
        row(f"{name}, a branch, cold turn = 1", [spent / cold for spent in branch], target),
    ]


def _conversation(engine: "Engine", tokens: int) -> list[dict[str, Any]]:
    """One user message that renders to about so many tokens."""
    from mellea_responses.engine import GenerateRequest

    text = ""
    for n in range(10**6):
        text += SENTENCE.format(n=n)
        if n % 10 == 0:
            facts = engine.check(GenerateRequest(messages=({"role": "user", "content": text},)))
            if (facts.input_tokens or 0) >= tokens:
                break
    return [{"role": "user", "content": text}]


def _assistant(said: str) -> dict[str, Any]:
    return {"role": "assistant", "content": said}


async def _first_token(engine: "Engine", request: "GenerateRequest") -> tuple[float, str]:
    """What it costs to the first steps, and what was said."""
    from mellea_responses.turn import Text

    began = time.process_time()
    answer: AsyncIterator[Any] = engine.generate(request)
    steps = list(await anext(answer))
    spent = time.process_time() - began
    async for batch in answer:
        steps += batch
    return spent, "".join(step.text for step in steps if isinstance(step, Text))


def _asked(messages: list[dict[str, Any]], owner: str) -> "GenerateRequest":
    from mellea_responses.engine import GenerateRequest
    from mellea_responses.turn import Options

    return GenerateRequest(messages=tuple(messages), options=Options(temperature=0.0, max_output_tokens=1), owner=owner)


if __name__ == "__main__":
    main(measure)
