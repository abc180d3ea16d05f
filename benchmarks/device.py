"""What holds on a device: whether reuse says the same words, what it saves, how soon a cancelled answer stops, memory.

    python -m benchmarks.device                            # CUDA or MPS where there is one, and the CPU
    DEVICE_MODEL=Qwen/Qwen3-4B python -m benchmarks.device

Every type of number (float32, bfloat16, float16) is tried with the same prompts. *Agreement* is the share of answers
that are the same, token by token, as a cold run's, which feeds the whole prompt in one pass. In float32 it should be
all; elsewhere other shapes round differently, and one token that differs makes another answer.

Times are CPU time on the CPU, with as many threads as the process has, and the clock on a device, which is waited for.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import Row, main, row
from mellea_responses.engine.request import GenerateRequest
from mellea_responses.turn import Options, Text, Usage

if TYPE_CHECKING:
    from mellea_responses.engine import Engine

STORIES = ["a ferry", "two lighthouses", "the tide", "a harbour at night", "an old map", "rain", "a bridge", "salt"]
SENTENCE = "Here is a long sentence about {story}, and it has the number {n} in it. "
DTYPES = ("float32", "bfloat16", "float16")
PLAN = (8, 24, 400)  # prompts, tokens of an answer, tokens of a prompt
QUICK = (2, 3, 60)


@dataclass(frozen=True)
class Bench:
    """One model on one device in one type of number."""

    model: Any
    caches: Any
    name: str

    def seconds(self, act: Callable[[], Any]) -> float:
        if self.model.device.type != "cpu":
            return self.clock(act)
        began = time.process_time()
        act()
        return time.process_time() - began

    def clock(self, act: Callable[[], Any]) -> float:
        import torch

        if self.model.device.type == "cpu":
            began = time.perf_counter()
            act()
            return time.perf_counter() - began
        wait = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}[self.model.device.type]
        wait()
        began = time.perf_counter()
        act()
        wait()
        return time.perf_counter() - began

    def feed(self, tokens: list[int], cache: Any, chunk: int = 10**6) -> Any:
        for at in range(0, len(tokens), chunk):
            logits = self.model.forward(tokens[at : at + chunk], cache)
        return logits

    def answer(self, tokens: list[int], cache: Any, count: int, chunk: int = 10**6) -> list[int]:
        """The likeliest tokens that follow, `tokens` being what the cache lacks."""
        said = [int(self.feed(tokens, cache, chunk).argmax())]
        while len(said) < count:
            said.append(int(self.model.forward(said[-1:], cache).argmax()))
        return said


def measure(quick: bool = False) -> Iterator[Row]:
    import torch

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    devices = [*(["cuda"] if cuda else []), *(["mps"] if mps else []), "cpu"]
    for device in devices:
        for dtype in DTYPES[:2] if quick else DTYPES:
            yield from _one(device, dtype, *(QUICK if quick else PLAN))


def _one(device: str, dtype: str, prompts: int, count: int, length: int) -> Iterator[Row]:
    from mellea_responses.engine.caches import TransformersCaches
    from mellea_responses.engine.engine import Engine
    from mellea_responses.engine.load import load_model

    model = load_model(os.environ.get("DEVICE_MODEL"), device=device, dtype=dtype, progress=False)
    model.ends = frozenset()  # every answer has as many tokens as it may
    bench = Bench(model, TransformersCaches(), f"{device}, {dtype}")
    engine = Engine(model)
    try:
        missing = [name for name in engine.ready().__struct_fields__ if not getattr(engine.ready(), name)]
        yield row(f"{bench.name}, switched off by the self-check", [len(missing)], 0, "", note=", ".join(missing))
        yield from _agreement(bench, [_prompt(model, story, length) for story in STORIES[:prompts]], count)
        yield from _costs(bench, engine, length, count)
        yield from asyncio.run(_cancelled(bench, engine, length, count))
        yield from _memory(bench, engine)
    finally:
        engine.close()


def _prompt(model: Any, story: str, length: int) -> list[int]:
    text = "".join(SENTENCE.format(story=story, n=n) for n in range(length))
    tokens: list[int] = model.tokenizer.encode(text, add_special_tokens=False)
    return tokens[:length]


# Agreement.


def _agreement(bench: Bench, prompts: list[list[int]], count: int) -> Iterator[Row]:
    same: dict[str, list[bool]] = {}
    drift: dict[str, list[float]] = {}
    for tokens in prompts:
        cold = bench.answer(tokens, bench.model.new_cache(), count)
        logits = bench.feed(tokens, bench.model.new_cache()).float()
        for name, make in WAYS.items():
            rest, cache, chunk = make(bench, tokens)
            drift.setdefault(name, []).append(float((bench.feed(rest, cache, chunk).float() - logits).abs().max()))
            rest, cache, chunk = make(bench, tokens)
            same.setdefault(name, []).append(bench.answer(rest, cache, count, chunk) == cold)
    exact = 100.0 if bench.model.dtype.itemsize == 4 else None
    for name, answers in same.items():
        share = 100 * sum(answers) / len(answers)
        kept = "" if exact is None else "as it should be, " if share == exact else "**not as it should be**, "
        note = f"{kept}{len(answers)} answers of {count} tokens, logits differ by {max(drift[name]):.2g} at most"
        yield row(f"{bench.name}, agreement: {name}", [share], None, "%", note=note)


Way = tuple[list[int], Any, int]


def _chunked(bench: Bench, tokens: list[int]) -> Way:
    return tokens, bench.model.new_cache(), 64


def _kept(bench: Bench, tokens: list[int], extra: int = 0) -> Any:
    """A cache of all but the last 23 tokens, and of `extra` others after them."""
    cache = bench.model.new_cache()
    bench.feed(tokens[:-23] + tokens[:extra], cache)
    return cache


def _reused(bench: Bench, tokens: list[int]) -> Way:
    return tokens[-23:], _kept(bench, tokens), 10**6


def _forked(bench: Bench, tokens: list[int]) -> Way:
    kept, length = _kept(bench, tokens), len(tokens) - 23
    bench.feed(tokens[:9], bench.caches.fork(kept, length, length))  # another branch writes first
    return tokens[-23:], bench.caches.fork(kept, length, length), 10**6


def _cropped(bench: Bench, tokens: list[int]) -> Way:
    length = len(tokens) - 23
    return tokens[-23:], bench.caches.fork(_kept(bench, tokens, 9), length + 9, length), 10**6


WAYS: dict[str, Callable[[Bench, list[int]], Way]] = {
    "prompt in chunks": _chunked,
    "over a kept cache": _reused,
    "over a fork": _forked,
    "over a cut cache": _cropped,
}

# Costs.


def _costs(bench: Bench, engine: "Engine", length: int, count: int) -> Iterator[Row]:
    import torch

    tokens, network = _prompt(bench.model, STORIES[0], length), bench.model.network
    rounds = range(3)
    cold = [bench.seconds(lambda: bench.feed(tokens, bench.model.new_cache())) for _ in rounds]
    chunks = [bench.seconds(lambda: bench.feed(tokens, bench.model.new_cache(), 256)) for _ in rounds]
    kept = _kept(bench, tokens)
    forks = [bench.caches.fork(kept, length - 23, length - 23) for _ in rounds]
    warm = [bench.seconds(lambda: bench.feed(tokens[-23:], forks.pop())) for _ in rounds]
    yield row(f"{bench.name}, 23 tokens over {length - 23}, all of them = 1", [min(warm) / min(cold)])
    yield row(f"{bench.name}, prompt of {length} in chunks of 256, in one pass = 1", [min(chunks) / min(cold)])

    prompt, ratios, note = torch.tensor([tokens], device=bench.model.device), [], ""
    options = {"do_sample": False, "attention_mask": torch.ones_like(prompt), "pad_token_id": 0}
    for _ in rounds:
        long, short = (
            bench.seconds(lambda n=n: network.generate(prompt, max_new_tokens=n, min_new_tokens=n, **options))
            for n in (count, 1)
        )
        own, first = (bench.seconds(lambda n=n: bench.answer(tokens, bench.model.new_cache(), n)) for n in (count, 1))
        ratios.append((own - first) / (long - short))
        note = f"{1e3 * (own - first) / (count - 1):.2f} against {1e3 * (long - short) / (count - 1):.2f} ms"
    yield row(f"{bench.name}, a token of the loop, `generate()` = 1", ratios, 1 / 0.97, note=note)


async def _cancelled(bench: Bench, engine: "Engine", length: int, count: int) -> list[Row]:
    """What is still done after a cancel: tokens, and time against that of one token or one chunk of a prompt."""
    model, late, tokens, chunks = engine._model, list[float](), list[float](), list[float]()
    text = model.tokenizer.decode(_prompt(model, STORIES[1], length))
    chunk = bench.clock(lambda: bench.feed(_prompt(model, STORIES[2], length)[:256], model.new_cache()))
    for i in range(3):
        request = _request(f"{i} {text}", count)
        said, began, step, last = 0, 0.0, 1.0, 0.0
        async for batch in engine.generate(request):
            now = time.perf_counter()
            said += isinstance(batch[0], Text)
            if said == count and not began:
                request.cancelled.set()
                began, step = time.perf_counter(), now - last
                made = len(engine._worker._rows[0].writer.tokens) if engine._worker._rows else count
            last = now
            if isinstance(batch[-1], Usage) and began:
                late.append(float(batch[-1].output_tokens - made))
                tokens.append((time.perf_counter() - began) / step)
        request = _request(f"{i} and then {text}", count)
        answer = asyncio.ensure_future(anext(engine.generate(request)))
        while not engine.counts()["rows"] and not answer.done():  # noqa: ASYNC110  # the model's thread tells nobody
            await asyncio.sleep(0)
        request.cancelled.set()
        began = time.perf_counter()
        await answer
        chunks.append((time.perf_counter() - began) / chunk)
    rows = [row(f"{bench.name}, a prompt from a cancel to its end, a chunk = 1", chunks, 1.5)]
    if late:
        rows.append(row(f"{bench.name}, tokens after a cancel", late, 1, ""))
        rows.append(row(f"{bench.name}, an answer from a cancel to its end, a token = 1", tokens, 2))
    return rows


def _request(text: str, count: int) -> "GenerateRequest":
    options = Options(temperature=0.0, max_output_tokens=20 * count)
    return GenerateRequest(messages=({"role": "user", "content": text},), options=options)


def _memory(bench: Bench, engine: "Engine") -> Iterator[Row]:
    """Bytes of a kept token against the formula, and the peak; on the CPU that of the process, whatever ran before."""
    import torch

    model, counts = bench.model, engine.counts()
    config = model.network.config.get_text_config()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    formula = 2 * config.num_hidden_layers * config.num_key_value_heads * size * model.dtype.itemsize
    tokens = sum(len(entry.ids) for entry in engine._store._entries)
    if tokens:
        note = f"{formula / 1024:.1f} KiB a token by the formula"
        yield row(f"{bench.name}, kept bytes a token, formula = 1", [counts["bytes"] / tokens / formula], note=note)
    weights = sum(one.numel() * one.element_size() for one in model.network.parameters())
    peak = _peak(model.device.type)
    yield row(f"{bench.name}, peak memory, weights = 1", [peak / weights], note=f"{weights / 2**20:.0f} MiB of weights")
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()


def _peak(device: str) -> float:
    import torch

    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    if device == "mps":
        return torch.mps.driver_allocated_memory()
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(float(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main(measure)
