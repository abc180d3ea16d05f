"""Each benchmark runs, in a tiny size. What it measures is not judged here: on a busy machine nothing would hold."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from engine.tiny import make_network, make_tokenizer

ROOT = Path(__file__).parents[2]
ROW = re.compile(
    r"\| (?P<measure>[^|]+) \| (?P<value>[\d.e+]+) (?P<unit>\S*) \| \S+ to \S+ \| [\d.e+]+ \| [\d.]* \| .* \|"
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the clock of another process is Linux's")


def run(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
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


@pytest.mark.timeout(320)
def test_the_device_checks_run_with_any_model_and_reuse_says_the_same_words_in_float32(tmp_path):
    make_network().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)

    printed = run("benchmarks.device", "--quick", DEVICE_MODEL=str(tmp_path), OMP_NUM_THREADS="1").splitlines()

    rows = [row(line) for line in [line for line in printed if line.startswith("|")][2:]]
    found = {match["measure"]: float(match["value"]) for match in rows}
    agreement = {name: value for name, value in found.items() if "agreement" in name}
    assert {name.split(", ")[1] for name in found} == {"float32", "bfloat16"}
    assert len(agreement) == 8
    assert all(value == 100 for name, value in agreement.items() if "float32" in name)
    assert all(value == 0 for name, value in found.items() if "switched off" in name)


def test_the_runner_finds_every_benchmark_by_itself():
    assert "http_plain, http_stream, memory" in " ".join(run("benchmarks", "--help").split())
