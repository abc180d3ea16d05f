"""`m serve` is ours through a hook at interpreter start; Mellea's other commands stay, and there is a way out."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOOK = (ROOT / "mellea_responses_m.pth").read_text("utf-8")


def m(*words: str, before: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Mellea's command in a fresh interpreter, after the line of the `.pth` file."""
    code = f"{before}\n{HOOK}\nfrom cli.m import cli\ncli({list(words)!r}, prog_name='m')"
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={"PATH": "", "COLUMNS": "200", "TERM": "dumb", **(env or {})},
    )


def test_serve_has_our_options_and_mellea_s() -> None:
    done = m("serve", "--help")

    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("--response-ttl", "--host", "--port"))


def test_every_other_command_stays() -> None:
    done = m("--help")

    assert all(name in done.stdout for name in ("serve", "alora", "decompose", "eval", "fix"))
    assert m("decompose", "--help").returncode == 0


def test_a_variable_switches_it_off() -> None:
    done = m("serve", "--help", env={"MELLEA_RESPONSES_NO_M": "1"})

    assert done.returncode == 0
    assert "--response-ttl" not in done.stdout


def test_a_failure_leaves_mellea_s_command_and_says_so() -> None:
    done = m("serve", "--help", before="import sys; sys.modules['mellea_responses.cli.serve'] = None")

    assert done.returncode == 0
    assert "--response-ttl" not in done.stdout
    assert "`m serve` is Mellea's own" in done.stderr


def test_it_loads_nothing_when_python_starts() -> None:
    code = f"import sys; known = set(sys.modules)\n{HOOK}\nprint(sorted(set(sys.modules) - known))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)

    loaded = set(done.stdout.strip("[]\n").replace("'", "").split(", "))
    assert not any(name.partition(".")[0] in ("mellea", "litestar", "typer", "msgspec", "cli") for name in loaded)
