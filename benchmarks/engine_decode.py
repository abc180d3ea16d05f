"""Decoding one conversation: the engine against transformers' `generate()`, and what the engine adds to the model.

    OMP_NUM_THREADS=1 python benchmarks/engine_decode.py

CPU time of the process with one thread, the two alternating in one run. The cost of a token is that of a long answer
less that of an answer of one token, so the prompt does not count.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from mellea_responses.engine import Engine, GenerateRequest
from mellea_responses.engine.load import load_model
from mellea_responses.engine.row import Row
from mellea_responses.turn import Options

PROMPT = "Tell me a long story about a ferry, an island and the tide. " * 8


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


async def engine_costs(engine: Engine, tokens: int, options: dict[str, Any]) -> float:
    chosen = Options(max_output_tokens=tokens, **options)
    request = GenerateRequest(
        messages=({"role": "user", "content": PROMPT},), options=chosen, owner=str(time.time_ns())
    )
    began = time.process_time()
    async for _ in engine.generate(request):
        pass
    return time.process_time() - began


def generate_costs(engine: Engine, ids: Sequence[int], tokens: int) -> float:
    prompt = torch.tensor([ids])
    began = time.process_time()
    engine._model.network.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False
    )
    return time.process_time() - began


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="hub id, folder or GGUF file; the embedded model without it")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=4)
    chosen = parser.parse_args()
    model = load_model(chosen.model, device="cpu")
    model.ends = frozenset()  # both sides always write the same number of tokens
    engine = Engine(model)
    engine.ready()
    ids = engine._prepare(GenerateRequest(messages=({"role": "user", "content": PROMPT},))).tokens

    ours, theirs = [], []
    for _ in range(chosen.rounds):
        short, long = [await engine_costs(engine, n, {"temperature": 0.0}) for n in (1, chosen.tokens)]
        ours.append((long - short) / (chosen.tokens - 1))
        short, long = [generate_costs(engine, ids, n) for n in (1, chosen.tokens)]
        theirs.append((long - short) / (chosen.tokens - 1))
    speed = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    print(f"engine {statistics.median(ours) * 1e3:.1f} ms a token, generate() {statistics.median(theirs) * 1e3:.1f} ms")
    print(f"engine's rate against generate(): {speed:.3f}")

    forward, choose = Meter(engine._model, "forward"), Meter(Row, "choose")
    for name, options in {"greedy": {"temperature": 0.0}, "sampled": {"temperature": 0.8, "top_p": 0.95}}.items():
        forward.spent = choose.spent = 0.0
        await engine_costs(engine, chosen.tokens, options)
        print(f"sampling and text, {name}: {100 * choose.spent / forward.spent:.2f} % of model time")
    engine.close()


if __name__ == "__main__":
    asyncio.run(main())
