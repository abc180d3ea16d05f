"""Decoding one conversation: the engine against transformers' `generate()`, and what the engine adds to the model.

    python -m benchmarks.engine_decode

CPU time of the process with one thread, the two alternating in one run. The cost of a token is that of a long answer
less that of an answer of one token, so the prompt does not count.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.common import Row, main, row

if TYPE_CHECKING:
    from mellea_responses.engine import Engine

PROMPT = "Tell me a long story about a ferry, an island and the tide. " * 8
SLOWEST = 1 / 0.97  # our time against that of `generate()`
SHARE = 2.0
WAYS: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0.0}, "sampled": {"temperature": 0.8, "top_p": 0.95}}


class Meter:
    """CPU time spent inside a function, of the thread that calls it."""

    def __init__(self, owner: Any, name: str) -> None:
        self.spent = 0.0
        inner = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            try:
                return inner(*args, **kwargs)
            finally:
                self.spent += time.thread_time() - began

        setattr(owner, name, timed)


def measure(quick: bool = False) -> Iterator[Row]:
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded
    from mellea_responses.engine import Engine
    from mellea_responses.engine.load import load_model

    model = load_model(None, device="cpu", dtype="float32", progress=False)
    model.ends = frozenset()  # both sides always write the same number of tokens
    engine = Engine(model)
    engine.ready()
    try:
        yield from asyncio.run(_measure(engine, *(4, 1) if quick else (48, 6)))
    finally:
        engine.close()


async def _measure(engine: "Engine", tokens: int, rounds: int) -> list[Row]:
    from mellea_responses.engine import GenerateRequest
    from mellea_responses.engine.row import Row as EngineRow

    ids = engine._prepare(GenerateRequest(messages=({"role": "user", "content": PROMPT},))).tokens
    ours, theirs = [], []
    for _ in range(rounds):
        short, long = [await _engine_costs(engine, n, WAYS["greedy"]) for n in (1, tokens)]
        ours.append((long - short) / (tokens - 1))
        short, long = [_generate_costs(engine, ids, n) for n in (1, tokens)]
        theirs.append((long - short) / (tokens - 1))
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    note = f"{statistics.median(ours) * 1e3:.1f} against {statistics.median(theirs) * 1e3:.1f} ms"
    rows = [row("a token of an answer, `generate()` = 1", ratios, SLOWEST, note=note)]

    forward, choose = Meter(engine._model, "forward"), Meter(EngineRow, "choose")
    for name, options in WAYS.items():
        shares = []
        for _ in range(max(1, rounds // 2)):
            forward.spent = choose.spent = 0.0
            await _engine_costs(engine, tokens, options)
            shares.append(100 * choose.spent / forward.spent)
        rows.append(row(f"sampling and text against model time, {name}", shares, SHARE, "%"))
    return rows


async def _engine_costs(engine: "Engine", tokens: int, options: dict[str, Any]) -> float:
    from mellea_responses.engine import GenerateRequest
    from mellea_responses.turn import Options

    chosen = Options(max_output_tokens=tokens, **options)
    request = GenerateRequest(
        messages=({"role": "user", "content": PROMPT},), options=chosen, owner=str(time.time_ns())
    )
    began = time.process_time()
    async for _ in engine.generate(request):
        pass
    return time.process_time() - began


def _generate_costs(engine: "Engine", ids: Sequence[int], tokens: int) -> float:
    import torch

    prompt = torch.tensor([ids])
    began = time.process_time()
    engine._model.network.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False
    )
    return time.process_time() - began


if __name__ == "__main__":
    main(measure)
