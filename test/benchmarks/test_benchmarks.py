"""Each benchmark runs, in a tiny size. What it measures is not judged here: on a busy machine nothing would hold."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(
    r"\| (?P<measure>[^|]+) \| (?P<value>[\d.e+]+) (?P<unit>\S+) \| \S+ to \S+ \| [\d.e+]+ \| [\d.]* \| .* \|"
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the clock of another process is Linux's")


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def row(line: str) -> re.Match[str]:
    found = ROW.fullmatch(line)
    assert found is not None, line
    return found


@pytest.mark.parametrize("name", ["command", "http_plain", "http_stream", "memory"])
def test_a_benchmark_runs_and_every_row_has_a_figure(name):
    printed = run("benchmarks", name, "--quick").splitlines()

    rows = [row(line) for line in [line for line in printed if line.startswith("|")][2:]]
    assert rows
    assert all(float(found["value"]) > 0 for found in rows)


def test_the_runner_finds_every_benchmark_by_itself():
    assert "http_plain, http_stream, memory" in " ".join(run("benchmarks", "--help").split())
