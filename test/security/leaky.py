"""A program that fails in every way a program can, with words in its failures that no client should read."""

import os
import time
from collections.abc import Iterator
from typing import Any

from mellea_responses.turn import Call, CallArgs, CallEnd, ItemDone, Step, Text, Thought, Turn

INSIDE = "the-words-of-the-exception"


def _words(turn: Turn) -> str:
    parts = [part for item in turn.items for part in getattr(item, "content", ()) or ()]
    return " ".join(part.text for part in parts if hasattr(part, "text"))


def check(turn: Turn) -> None:
    if "fail-check" in _words(turn):
        raise KeyError(f"{INSIDE} in {__file__} with {os.environ['CANARY']}")


def serve(turn: Turn) -> Iterator[Step]:
    words = _words(turn)
    inside = f"{INSIDE} in {__file__} with {os.environ['CANARY']}"
    if "fail-first" in words:
        raise RuntimeError(inside)
    yield Thought("thinking")
    if "fail-late" in words:
        yield Text("before")
        raise OSError(2, inside, __file__)
    if "fail-chained" in words:
        try:
            raise ValueError(inside)
        except ValueError as exc:
            raise LookupError("again") from exc
    if "fail-call" in words:
        yield Call(inside, "nowhere")
    if "fail-arguments" in words:
        yield from (Call("k", "tide"), CallArgs("k", '{"of": 5}'), CallEnd("k"))
        return
    if "fail-twice" in words:
        yield from (Call(inside, "tide"), Call(inside, "tide"))
    if "fail-receipt" in words:
        yield ItemDone({"type": inside, "x": {1, 2}})
    if "fail-step" in words:
        bad: Any = type("Odd", (), {"__repr__": lambda self: inside, "__str__": lambda self: inside})()
        yield bad
    if "fail-time" in words:
        time.sleep(3)
    yield Text("fine")
