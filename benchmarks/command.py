"""Mellea's command `m` with our hook, against `m` without it, and what the hook costs an interpreter that starts."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import ROOT, Row, main, row

OFF = {"MELLEA_RESPONSES_NO_M": "1"}


def measure(quick: bool = False) -> Iterator[Row]:
    helps, starts = (2, 2) if quick else (7, 60)
    hook = (ROOT / "mellea_responses_m.pth").read_text("utf-8")
    asked = [sys.executable, "-c", f"{hook}\nfrom cli.m import cli\ncli(['serve', '--help'], prog_name='m')"]
    yield _row("`m serve --help` against Mellea's own", 1.1, *_by_turns(asked, asked, helps))

    with tempfile.TemporaryDirectory() as folder:
        # As in site-packages: `site` reads path files before anything else runs.
        for name in ("with", "without"):
            Path(folder, name).mkdir()
        Path(folder, "with", "mellea_responses_m.pth").write_text(hook, "utf-8")
        with_it, without = (
            [sys.executable, "-c", f"import site; site.addsitedir({str(Path(folder, name))!r})"]
            for name in ("with", "without")
        )
        yield _row(
            "start of the interpreter with our `.pth` against without", None, *_by_turns(with_it, without, starts)
        )


def _row(measure: str, target: float | None, ours: list[float], theirs: list[float]) -> Row:
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    low, floor = min(ours), min(theirs)
    return row(measure, ratios, target, calm=low / floor, note=f"{low * 1e3:.1f} against {floor * 1e3:.1f} ms")


def _by_turns(ours: list[str], theirs: list[str], rounds: int) -> tuple[list[float], list[float]]:
    """Processor time of a command with the hook, and of one where it is switched off, in every round."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    for i in range(-1, rounds):  # the first one fills the caches and writes the byte code
        for on in (True, False) if i % 2 == 0 else (False, True):
            seconds = _seconds(ours if on else theirs, on)
            if i >= 0:
                spent[on].append(seconds)
    return spent[True], spent[False]


def _seconds(command: list[str], on: bool) -> float:
    environment = {key: value for key, value in os.environ.items() if key not in OFF}
    environment |= {"PYTHONPATH": str(ROOT)} | ({} if on else OFF)
    process = subprocess.Popen(command, cwd=tempfile.gettempdir(), env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(measure)
