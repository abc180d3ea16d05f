"""First token of the next turn: over a kept cache, cold, and a bare forward pass of the same tokens.

    OMP_NUM_THREADS=1 python benchmarks/engine_reuse.py --lengths 500 2000

CPU time of the whole process with one thread, in one run: what the request costs from the call to its first batch of
steps, rendering and tokenising included. The cold run is the first turn of the conversation, a little shorter than the
ones it is compared with. Warm turns, each going on from the one before, and bare passes alternate.
"""

import argparse
import asyncio
import copy
import statistics
import time

from mellea_responses.engine import Engine, GenerateRequest
from mellea_responses.turn import Options, Text

SENTENCE = "The ferry to the island leaves at half past {n}, and the tide at the harbour is {n} feet high. "
QUESTION = "And when exactly does the next one of them leave again?"
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


async def first_token(engine: Engine, request: GenerateRequest) -> tuple[float, str]:
    """What it costs to the first steps, and what was said."""
    began = time.process_time()
    answer = engine.generate(request)
    steps = list(await anext(answer))
    spent = time.process_time() - began
    async for batch in answer:
        steps += batch
    return spent, "".join(step.text for step in steps if isinstance(step, Text))


def asked(messages: list[dict[str, str]], owner: str) -> GenerateRequest:
    return GenerateRequest(messages=tuple(messages), options=ONE, owner=owner)


async def measure(engine: Engine, length: int, rounds: int) -> str:
    history, owner = conversation(engine, length), str(length)
    first = asked(history, owner)
    cold, said = await first_token(engine, first)
    held = engine._prepare(first).tokens
    lease = engine._store.lease(owner, (*held, 0))
    assert lease is not None
    cache = copy.deepcopy(lease.fork())
    lease.release()
    warm, plain, new = [], [], 0
    for _ in range(rounds):
        history = [*history, {"role": "assistant", "content": said}, {"role": "user", "content": QUESTION}]
        request = asked(history, owner)
        tokens = engine._prepare(request).tokens
        began = time.process_time()
        engine._model.forward(tokens[len(held) :], cache)
        plain.append(time.process_time() - began)
        held, new = tokens, len(tokens) - len(held)
        spent, said = await first_token(engine, request)
        warm.append(spent)
        assert request.notes["new"] == new, request.notes
    spent, over = statistics.median(warm), statistics.median(w / p for w, p in zip(warm, plain, strict=True))
    return f"| {first.notes['new']} | {new} | {cold:.2f} s | {spent:.3f} s | {spent / cold:.3f} | {over:.2f} |"


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
