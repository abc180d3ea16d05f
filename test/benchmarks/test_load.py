"""The load program in small: nothing wrong is answered, and nothing is left. Times are not judged here."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="processor time and descriptors of another process are Linux's")
def test_clients_of_every_kind_get_their_own_answers_and_leave_nothing() -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.load",
        "--seconds",
        "6",
        "--clients",
        "24",
        "--ttl",
        "4",
        "--think",
        "0.1",
    ]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong" in done.stdout
    acts = done.stdout.partition("acts of ")[2].splitlines()[0]
    for kind in ("json_answer", "sse", "chat", "chained", "over_a_socket", "leaving", "wrongly", "reading_slowly"):
        assert f"'{kind}'" in acts
