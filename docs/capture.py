"""Runs Codex on the embedded model, and writes what its user sees into docs/clients.md.

Not part of `make check`: it needs the client (`make test-clients`) and a minute, and no two runs are quite alike.

python docs/capture.py
"""

import asyncio
import re
import sys
import tempfile
from pathlib import Path

from marked import ROOT, filled

sys.path.insert(0, str(ROOT / "test"))

from support.coders import Codex, told_to_call  # after the path
from support.reader import started

PAGE = ROOT / "docs" / "clients.md"
NOISE = ("WARNING: proceeding", "Reading additional input", "warning: Model metadata", "session id:")


async def captured(folder: Path) -> str:
    """What is on the screen."""
    prompt = told_to_call("exec_command", cmd="mkdir made")
    with started(["mellea-responses", "serve"], folder) as url:
        outcome = await Codex(folder).ask(url, prompt, small=True, seconds=300)
    shown = "\n".join(line for line in outcome.errors.splitlines() if not line.startswith(NOISE))
    shown = re.sub(rf"{re.escape(str(folder))}/work|{re.escape(str((folder / 'work').resolve()))}", "~/project", shown)
    return f"$ codex exec --skip-git-repo-check --sandbox danger-full-access '{prompt}'\n{shown.strip()}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = asyncio.run(captured(Path(folder)))
    PAGE.write_text(filled(PAGE.read_text("utf-8"), "codex", f"```text\n{text}\n```"), "utf-8")


if __name__ == "__main__":
    main()
