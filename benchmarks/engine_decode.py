"""Decoding one conversation: the engine against transformers' `generate()`, and what the engine adds to the model.

    python -m benchmarks.engine_decode

CPU time of the process with one thread, everything between the first token and the last: model, sampling, text, and
for the engine the reader's event loop as well. `generate()` runs as it comes, with a cache and an attention of its own
choice, and streams its tokens to somebody who only looks at the clock. The two take turns in short answers, each
beginning every other time, over the same prompt.
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

PROMPT = "Tell me a long story about a ferry, an island and the tide. "
PLAN = {8: (24, 12), 80: (24, 4)}  # repetitions of the prompt: tokens of an answer, rounds
SLOWEST = 1 / 0.97  # our time against that of `generate()`
SHARE = 2.0
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature and `top_p`": {"temperature": 0.8, "top_p": 0.95},
    "with penalties": {"temperature": 0.8, "top_p": 0.95, "frequency_penalty": 0.5, "repetition_penalty": 1.1},
}


class Clock:
    """Reads CPU time whenever it is told of a token; a streamer for `generate()`, which brings the prompt first."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, _: Any = None) -> None:
        self.times.append(time.process_time())

    def end(self) -> None:
        """Nothing is open."""

    def token(self, tokens: int) -> float:
        """Seconds a token, the first one left out."""
        times = self.times[-tokens:]
        return (times[-1] - times[0]) / (len(times) - 1)


class Meter:
    """CPU time spent inside a function, of the thread that calls it."""

    def __init__(self, owner: Any, name: str) -> None:
        self.spent = 0.0
        self.then: Clock | None = None
        inner = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            try:
                return inner(*args, **kwargs)
            finally:
                self.spent += time.thread_time() - began
                if self.then is not None:
                    self.then.put()

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
        yield from asyncio.run(_measure(engine, {1: (4, 1)} if quick else PLAN))
    finally:
        engine.close()


async def _measure(engine: "Engine", plan: dict[int, tuple[int, int]]) -> list[Row]:
    from mellea_responses.engine.row import Row as EngineRow

    forward, choose = Meter(engine._model, "forward"), Meter(EngineRow, "choose")
    rows = [await _against_generate(engine, choose, times, *size) for times, size in plan.items()]
    times, (tokens, rounds) = next(iter(plan.items()))
    for name, options in WAYS.items():
        shares = []
        for _ in range(max(1, rounds // 2)):
            forward.spent = choose.spent = 0.0
            await _answer(engine, times, tokens, options)
            shares.append(100 * choose.spent / forward.spent)
        rows.append(row(f"sampling and text against model time, {name}", shares, SHARE, "%"))
    return rows


async def _against_generate(engine: "Engine", choose: Meter, times: int, tokens: int, rounds: int) -> Row:
    ours, theirs, ids = list[float](), list[float](), _prompt(engine, times)
    for i in range(rounds):
        for engine_s in (True, False) if i % 2 == 0 else (False, True):
            clock = Clock()
            if engine_s:
                choose.then = clock
                await _answer(engine, times, tokens, WAYS["greedy"])
                choose.then = None
                ours.append(clock.token(tokens))
            else:
                _generate(engine, ids, tokens, clock)
                theirs.append(clock.token(tokens))
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    calm = min(ours) / min(theirs)
    note = f"{statistics.median(ours) * 1e3:.1f} against {statistics.median(theirs) * 1e3:.1f} ms"
    return row(f"a token of an answer over {len(ids)}, `generate()` = 1", ratios, SLOWEST, calm=calm, note=note)


def _prompt(engine: "Engine", times: int) -> Sequence[int]:
    from mellea_responses.engine import GenerateRequest

    return engine._prepare(GenerateRequest(messages=({"role": "user", "content": PROMPT * times},))).tokens


async def _answer(engine: "Engine", times: int, tokens: int, options: dict[str, Any]) -> None:
    from mellea_responses.engine import GenerateRequest
    from mellea_responses.turn import Options

    chosen = Options(max_output_tokens=tokens, **options)
    messages = ({"role": "user", "content": PROMPT * times},)
    # The caches of one owner find each other: only the first prompt of a length is fed whole.
    async for _ in engine.generate(GenerateRequest(messages=messages, options=chosen, owner=str(times))):
        pass


def _generate(engine: "Engine", ids: Sequence[int], tokens: int, clock: Clock) -> None:
    import torch

    network, ours = engine._model.network, engine._model.network.config._attn_implementation
    network.set_attn_implementation("sdpa")
    prompt = torch.tensor([ids])
    network.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=tokens,
        do_sample=False,
        streamer=clock,
    )
    network.set_attn_implementation(ours)
    assert len(clock.times) == tokens + 1, "the model ended its answer"


if __name__ == "__main__":
    main(measure)
