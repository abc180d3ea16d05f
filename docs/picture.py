"""Draws the way of one request from the code, and lists the rooms it goes through; with `--check`, fails on a change.

Each step of the way is a function. What it takes and what it gives are read from its annotations, and the picture is
refused when a step cannot take what stands before it: the line is straight, or there is no picture.

python docs/picture.py [--check]
"""

import importlib
import inspect
import re
import tomllib
from collections.abc import AsyncIterator, Iterator, Sequence
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from marked import ROOT, main

from mellea_responses import turn
from mellea_responses.wire import events

PACKAGE = "mellea_responses"
WAY = [
    "http.body:inflate",
    "wire.decode:decode_create",
    "normalize.request:normalize",
    "history:complete",
    "program:Program.check",
    "program:Program.run",
    "guard:Guard.hear",
    "builder:Builder.hear",
    "log:EventLog.append",
    "log:EventLog.batches",
    "http.sse:frames",
]
UNIONS = {"Said": turn.Said, "Step": turn.Step, "Event": events.Event}
"""Unions that have a name in the code, the larger one first; they keep none themselves."""

CARRIES = {
    ("Normalized", "Turn"),  # a Normalized is a Turn
    ("Turn", "CurrentRun"),  # a run carries its turn
    ("Step", "Said"),  # what is said is the steps that the guard let through, and the run's own words
    ("Event", "int"),  # a reader asks the log for events by number
    ("bytes", "EventLog"),  # frames are made of what the log hands out
}
"""What a step gives, and the form in which the next one takes it where that is another."""

LEAVES = ("", "Facts")
"""What a step gives without changing what travels: nothing, or what a check has found out."""


class Stage(NamedTuple):
    """One step of the way."""

    name: str
    file: str
    takes: str
    gives: str
    says: str


def way() -> list[Stage]:
    stages: list[Stage] = []
    flow = "bytes"
    for target in WAY:
        one = stage(target)
        if one.takes != flow and (flow, one.takes) not in CARRIES:
            raise ValueError(f"the line is broken: {one.name} takes {one.takes}, but {flow} stands before it")
        flow = one.gives if one.gives not in LEAVES else flow
        stages.append(one._replace(gives=flow))
    return stages


def stage(target: str) -> Stage:
    module, _, name = target.partition(":")
    code: Any = importlib.import_module(f"{PACKAGE}.{module}")
    file = str(ROOT / PACKAGE / code.__file__).rpartition(f"{PACKAGE}/")[2]
    for part in name.split("."):
        code = getattr(code, part)
    hints = get_type_hints(code)
    return Stage(name, file, shown(next(iter(hints.values()))), shown(hints["return"]), first_sentence(code))


def shown(hint: Any) -> str:
    """What travels, without what it travels in: `AsyncIterator[Sequence[Step]]` is steps."""
    known = [name for name, union in UNIONS.items() if set(get_args(union)) <= set(get_args(hint))]
    if known:
        return known[0]
    if get_origin(hint) in (AsyncIterator, Sequence, list):
        return shown(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return shown(next(one for one in get_args(hint) if one is not type(None)))
    return "" if hint is type(None) else str(hint.__name__)


def first_sentence(documented: Any) -> str:
    text = re.sub(r"\s+", " ", inspect.getdoc(documented) or "")
    if not text:
        raise ValueError(f"{documented!r} has no docstring")
    return re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]


def arrows() -> Iterator[tuple[list[Stage], str]]:
    """The steps between one value and the next."""
    flow, steps = "bytes", []
    for one in way():
        steps.append(one)
        if one.gives != flow:
            yield steps, one.gives
            flow, steps = one.gives, []
    if steps:
        yield steps, flow


def line() -> str:
    """The way on a few short lines."""
    lines = ["bytes"]
    for steps, value in arrows():
        part = f" ─{', '.join(verb(one) for one in steps)}▶ {value}"
        if len(lines[-1] + part) > 80:
            lines.append("  ")
        lines[-1] += part
    return "```\n" + "\n".join(lines) + "\n```"


def verb(one: Stage) -> str:
    owner, _, method = one.name.rpartition(".")
    return {"hear": owner.lower(), "append": "log", "batches": "read"}.get(method, method)


def drawing() -> str:
    """The way from top to bottom, with a word on each step."""
    width = max(len(one.name) for one in way()) + 2
    rows = ["bytes"]
    for steps, value in arrows():
        for one in steps:
            rows += [f"  │  {one.name:<{width}}{one.says}", f"  │  {'':<{width}}{one.file}"]
        rows += ["  ▼", value]
    return "```\n" + "\n".join(rows) + "\n```"


def rooms() -> str:
    """Every room with what it is for, top to bottom."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in config["contracts"] if contract["type"] == "layers")
    rows = ["| Level | Room | What it is for |", "| --- | --- | --- |"]
    for level, layer in enumerate(layers, 1):
        for room in layer.split(" | "):
            code = importlib.import_module(f"{PACKAGE}.{room}")
            name = f"{room}/" if hasattr(code, "__path__") else f"{room}.py"
            rows.append(f"| {level} | `{name}` | {first_sentence(code)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main(
        {
            ("README.md", "picture"): line(),
            ("docs/architecture.md", "picture"): drawing(),
            ("docs/architecture.md", "rooms"): rooms(),
        },
        "docs/picture.py",
    )
