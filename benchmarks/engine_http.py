"""First token of the next turn through the HTTP server: against a cold turn, and against a bare forward pass.

    python -m benchmarks.engine_http
    TRANSFORMERS_SERVE=… LOCAL_HF=… python -m benchmarks.engine_http    # beside others: benchmarks/peers.py

CPU time of the server's process, one torch thread, float32, greedy, one token said. After its first turn a conversation
forks. One branch goes on with questions, now by `previous_response_id` and now replayed whole; in another, new in each
round, the model calls a tool three times, and each result is sent by `previous_response_id`. After each turn comes a
bare pass of as many tokens over a cache of as many in this process. Cold is the first turn of such a conversation,
which shares nothing but the template's beginning.

The embedded model calls tools only by imitation, so the conversation begins with a few calls given as items.
"""

import copy
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.common import Row, Server, main, row, started
from benchmarks.peers import Peer, as_messages, peers
from benchmarks.turns import request

SENTENCE = "The ferry to the island leaves at half past {n}, and the tide at the harbour is {n} feet high. "
SENTENCE_TOKENS = 25
CALLS = "Call the tool for every hour, one after the other."
GIVEN = 5  # calls for the model to imitate
QUESTION = "And when exactly does the next one of them leave again?"
TOOL = {
    "type": "function",
    "name": "tide",
    "description": "Tide at an hour.",
    "parameters": {"type": "object", "properties": {"hour": {"type": "integer"}}},
}
TARGETS = {500: 0.12, 2000: 0.04, 6000: 0.025}
BARE_TARGET = 1.15
PLAN = {500: (6, 3), 2000: (4, 2), 6000: (3, 1)}  # rounds, cold turns


class Cost(NamedTuple):
    """One turn: CPU seconds of the server, tokens of the prompt, and how many of them came from a cache."""

    seconds: float
    input: int
    cached: int


class Session:
    """One conversation with a server of ours.

    Args:
        server: The server.
        items: How it begins.
        word: Its first word, which no other conversation begins with.
        tools: What the model may call.
    """

    def __init__(self, server: Server, items: list[dict[str, Any]], word: str, *tools: dict[str, Any]) -> None:
        self._server, self.items, self._tools = server, items, tools
        self.instructions = f"{word} is your name. Answer in few words."
        self._last = ""
        self.scripted = 0

    def begin(self) -> Cost:
        return self._send(self.items)

    def on(self, *new: dict[str, Any]) -> Cost:
        """By `previous_response_id`."""
        self.items = [*self.items, *new]
        return self._send(list(new), previous_response_id=self._last)

    def replay(self, *new: dict[str, Any]) -> Cost:
        """Everything again, what the model said included."""
        self.items = [*self.items, *new]
        return self._send(self.items)

    def call(self) -> None:
        """The model goes on with what it was given and calls; its first token is known already."""
        before, self.items = self.items, self._given
        self._send(self._new, **self._more, max_output_tokens=60)
        if self.items[-1]["type"] != "function_call":
            self.items = before

    def result(self, number: int) -> Cost:
        """What the tool said, to the last call; a scripted call before it if the model made none."""
        new = called(number)
        if self.items[-1]["type"] == "function_call":
            return self.on({**new[1], "call_id": self.items[-1]["call_id"]})
        self.scripted += 1
        return self.on(*new)

    def _send(self, items: list[dict[str, Any]], **more: Any) -> Cost:
        body: dict[str, Any] = {"model": "m", "instructions": self.instructions, "input": items, "tools": self._tools}
        body |= {"temperature": 0, "max_output_tokens": 1, **more}
        answer, seconds = request(self._server, "/v1/responses", body)
        more.pop("max_output_tokens", None)
        self._given, self._new, self._more = self.items, items, more
        self._last = answer["id"]
        self.items = [*self.items, *answer["output"]]
        usage = answer["usage"]
        return Cost(seconds, usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"])


def story(tokens: int) -> list[dict[str, Any]]:
    """One user message of about so many tokens."""
    return [said("".join(SENTENCE.format(n=n) for n in range(max(1, tokens // SENTENCE_TOKENS))))]


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def called(number: int) -> list[dict[str, Any]]:
    """A call and its result, as a client sends them."""
    call = {
        "type": "function_call",
        "call_id": f"call_{number}",
        "name": "tide",
        "arguments": json.dumps({"hour": number}),
    }
    return [call, {"type": "function_call_output", "call_id": call["call_id"], "output": str(number)}]


class Bare:
    """The model in this process, and nothing around it."""

    def __init__(self) -> None:
        import torch

        from mellea_responses.engine.attention import use_grouped
        from mellea_responses.engine.load import load_model

        torch.set_num_threads(1)
        self.model = load_model(None, device="cpu", dtype="float32", progress=False)
        use_grouped(self.model.network)  # as the server does: with transformers' own the passes would cost more
        self.tokens: list[int] = self.model.tokenizer(story(600)[0]["content"])["input_ids"][:512]
        self.folder: str = self.model.tokenizer.name_or_path

    def over(self, length: int) -> "Passes":
        """Passes over a cache of this length: keys and values of one real pass, repeated."""
        import torch

        piece: Any = self.model.new_cache()
        cache: Any = self.model.new_cache()
        self.model.forward(self.tokens, piece)
        times = -(-length // len(self.tokens))
        with torch.inference_mode():
            for i, layer in enumerate(piece.layers):
                keys, values = (part.repeat(1, 1, times, 1)[:, :, :length] for part in (layer.keys, layer.values))
                cache.update(keys.contiguous(), values.contiguous(), i)
        return Passes(self, cache, length)


class Passes:
    """One cache that grows as a conversation's does."""

    def __init__(self, bare: Bare, cache: Any, length: int) -> None:
        self._bare, self._cache, self._held = bare, cache, length

    def cost(self, turn: Cost) -> float:
        """One pass of as many tokens as were new in this turn, over as many as were not."""
        if turn.cached < self._held:
            self._cache.crop(turn.cached - self._held)
        elif turn.cached > self._held:  # what the model said
            self._forward(turn.cached - self._held)
        self._held = turn.input
        return self._forward(turn.input - turn.cached)

    def _forward(self, count: int) -> float:
        began = time.process_time()
        self._bare.model.forward(self._bare.tokens[:count], self._cache)
        return time.process_time() - began


class Series:
    """What one kind of turn cost, and the bare passes beside it."""

    def __init__(self, name: str, cold: list[float]) -> None:
        self.name, self.cold = name, cold
        self.turns: list[Cost] = []
        self.passes: list[float] = []

    def add(self, turn: Cost, spent: float) -> None:
        self.turns.append(turn)
        self.passes.append(spent)

    def rows(self, length: int, note: str = "") -> Iterator[Row]:
        costs, whole = [turn.seconds for turn in self.turns], statistics.median(self.cold)
        new = round(statistics.median(turn.input - turn.cached for turn in self.turns))
        held = round(statistics.median(turn.cached for turn in self.turns))
        figures = f"{new} new over {held}: {statistics.median(costs):.3f} s, cold {whole:.2f} s{note}"
        name = f"{length} tokens, {self.name}"
        yield row(f"{name}, cold turn = 1", [cost / whole for cost in costs], TARGETS.get(length), note=figures)
        ratios = [cost / spent for cost, spent in zip(costs, self.passes, strict=True)]
        note = f"pass {statistics.median(self.passes):.3f} s"
        yield row(f"{name}, bare pass = 1", ratios, BARE_TARGET, note=note)


def measure(quick: bool = False) -> Iterator[Row]:
    os.environ["OMP_NUM_THREADS"] = "1"
    plan = {100: (1, 1)} if quick else PLAN
    serve = ["-m", "mellea_responses", "serve", "--port", "0", "--device", "cpu", "--dtype", "float32"]
    bare = Bare()
    with started({"ours": serve}) as [ours], peers(bare.folder) as others:
        Session(ours, story(50), "Zoe").begin()  # late imports
        for length, (rounds, colds) in plan.items():
            yield from _one_length(ours, bare, others, length, rounds, colds)


def _one_length(ours: Server, bare: Bare, others: list[Peer], length: int, rounds: int, colds: int) -> Iterator[Row]:
    words = iter([f"{name}{length}" for name in ("Ada", "Bob", "Cyd", "Dan")])
    beginning = [*story(length - 420), said(CALLS), *[item for n in range(GIVEN) for item in called(n)]]
    talk = Session(ours, beginning, next(words), TOOL)
    first = talk.begin()
    fork = copy.copy(talk)
    cold = [first.seconds]
    theirs: dict[str, list[tuple[float, int]]] = {peer.name: [] for peer in others}
    chained = Series("by `previous_response_id`", cold)
    replayed = Series("by full replay", cold)
    loop = Series("tool loop", cold)
    of_talk, of_tool = bare.over(first.input), bare.over(first.input)
    scripted = 0
    for i in range(rounds):
        if i + 1 < colds:
            cold.append(Session(ours, beginning, next(words), TOOL).begin().seconds)
        turn = talk.on(said(QUESTION))
        chained.add(turn, of_talk.cost(turn))
        turn = talk.replay(said(QUESTION))
        replayed.add(turn, of_talk.cost(turn))
        tool = copy.copy(fork)
        for step in range(3):
            tool.call()
            turn = tool.result(GIVEN + 3 * i + step)
            loop.add(turn, of_tool.cost(turn))
        scripted += tool.scripted
        for peer in others if i < colds else ():
            theirs[peer.name].append(peer.ask(as_messages(talk.instructions, talk.items)))
        _tell(f"{length} tokens, round {i + 1} of {rounds}, load {os.getloadavg()[0]:.1f}")
    yield from chained.rows(length)
    yield from replayed.rows(length)
    yield from loop.rows(length, f"; {scripted} of {len(loop.turns)} calls scripted" if scripted else "")
    for name, asked in theirs.items():
        ratios = [cost / statistics.median(cold) for cost, _ in asked]
        note = f"{asked[-1][1]} in all: {statistics.median(cost for cost, _ in asked):.2f} s"
        yield row(f"{length} tokens, {name}, our cold turn = 1", ratios, note=note)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(measure)
