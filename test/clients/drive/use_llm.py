"""llm: `use_llm.py MODE/FEATURE=URL…` with the modes plain, stream, plugin.

Each case is typed at its command line, as a user does.
"""

import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import DOT, SECONDS, main, shown

FUNCTION = 'def get_weather(city: str) -> str:\n    "How the weather is."\n    return f"{city} is sunny"\n'


def use(mode: str, feature: str, url: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "extra-openai-models.yaml").write_text(shown("llm", url))
        (Path(folder) / "dot.png").write_bytes(base64.b64decode(DOT))
        env = {**os.environ, "LLM_USER_PATH": folder}
        if mode == "plugin":
            env["OPENAI_BASE_URL"] = f"{url}/v1"
        seen = ask(env, options(mode, feature), "One." if feature == "conversation" else "How is the weather?")
        if feature == "conversation":
            seen = ask(env, ["--continue", *(["--no-stream"] if mode == "plain" else [])], "Two.")
    if feature == "structured":
        city = json.loads(seen)
        seen = f"{city['city']} has {city['degrees']} degrees."
    return {"text": seen}


def options(mode: str, feature: str) -> list[str]:
    chosen = ["--model", "openai/gpt-5-mini" if mode == "plugin" else "local"]
    if mode == "plain":
        chosen += ["--no-stream"]
    if feature in ("tools", "parallel", "reasoning"):
        chosen += ["--functions", FUNCTION]
    if feature == "reasoning":
        chosen += ["--option", "reasoning_effort", "low"]
    if feature == "structured":
        chosen += ["--schema", "city, degrees int"]
    if feature == "images":
        chosen += ["--attachment", "dot.png"]
    return chosen


def ask(env: dict[str, str], chosen: list[str], words: str) -> str:
    command = [sys.executable, "-m", "llm", "prompt", *chosen, words]
    done = subprocess.run(
        command, env=env, cwd=env["LLM_USER_PATH"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=SECONDS - 2,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout.strip()


main(use)
