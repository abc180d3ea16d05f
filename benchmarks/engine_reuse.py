"""First token of the next turn: over a kept cache, cold, and a bare forward pass of the same tokens.

    OMP_NUM_THREADS=1 python benchmarks/engine_reuse.py --lengths 500 2000

CPU time of the whole process with one thread, in one run: what the request costs from the call to its first batch of
steps, rendering and tokenising included. The cold run is a turn of the same length by an owner without a history.
Warm turns and bare passes alternate.
"""

import argparse
import asyncio
import statistics
import time

from mellea_responses.engine import Engine, GenerateRequest
from mellea_responses.turn import Options

SENTENCE = "The ferry to the island leaves at half past {n}, and the tide at the harbour is {n} feet high. "
ANSWER, QUESTION = "{n} o'clock.", "When does the next one leave?"
ONE = Options(temperature=0.0, max_output_tokens=1)


def conversation(engine: Engine, tokens: int) -> list[dict[str, str]]:
    """One user message that renders to about so many tokens."""
    text = ""
    for n in range(10**6):
        text += SENTENCE.format(n=n)
        if n % 10 == 0:
            facts = engine.check(GenerateRequest(messages=({"role": "user", "content": text},)))
            if (facts.input_tokens or 0) >= tokens:
                break
    return [{"role": "user", "content": text}]


def turn(history: list[dict[str, str]], n: int, owner: str) -> GenerateRequest:
    """The next turn. Each answers differently from its first token on, so that all share the history and no more."""
    said = [{"role": "assistant", "content": ANSWER.format(n=n)}, {"role": "user", "content": QUESTION}]
    return GenerateRequest(messages=(*history, *said), options=ONE, owner=owner)


async def first_token(engine: Engine, request: GenerateRequest) -> float:
    began = time.process_time()
    answer = engine.generate(request)
    await anext(answer)
    spent = time.process_time() - began
    async for _ in answer:
        pass
    return spent


def bare(engine: Engine, request: GenerateRequest) -> float:
    """A forward pass of what a prompt adds to the kept cache, and nothing else."""
    tokens = engine._prepare(request).tokens
    lease = engine._store.lease(request.owner, tokens)
    assert lease is not None
    cache, new = lease.fork(), tokens[lease.length :]
    lease.release()
    began = time.process_time()
    engine._model.forward(new, cache)
    return time.process_time() - began


async def measure(engine: Engine, length: int, rounds: int) -> str:
    history, owner = conversation(engine, length), str(length)
    first = turn(history, 0, owner)
    cold = await first_token(engine, first)
    warm, plain = [], []
    for n in range(1, rounds + 1):
        request = turn(history, n, owner)
        plain.append(bare(engine, request))
        warm.append(await first_token(engine, request))
    new, spent = int(request.notes["new"]), statistics.median(warm)
    over = statistics.median(w / p for w, p in zip(warm, plain, strict=True))
    return (
        f"| {int(first.notes['new']) - new} | {new} | {cold:.2f} s | {spent:.3f} s | {spent / cold:.3f} | {over:.2f} |"
    )


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", help="hub id, folder or GGUF file; the embedded model without it")
    options.add_argument("--lengths", type=int, nargs="+", default=[500, 2000])
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    engine = Engine.load(chosen.model, device="cpu")
    engine.ready()
    print("| history | new | cold | next turn | ratio to cold | ratio to a bare pass |\n|---|---|---|---|---|---|")
    for length in chosen.lengths:
        print(await measure(engine, length, chosen.rounds), flush=True)
    engine.close()


if __name__ == "__main__":
    asyncio.run(main())
