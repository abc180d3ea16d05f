"""What every driver in Python needs: its arguments, a picture, and one line of JSON for each case."""

import asyncio
import inspect
import json
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[3] / "docs" / "clients.md"
SECONDS = 40
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PIXEL = f"data:image/png;base64,{DOT}"
Seen = dict[str, Any]


def shown(block: str, url: str) -> str:
    """The settings that docs/clients.md shows in the code block of that name, for the server at `url`."""
    found = re.search(rf"^```\w+ {re.escape(block)}\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found, f"docs/clients.md has no block {block}"
    return found[1].replace("http://127.0.0.1:8080", url)


def main(ask: Callable[[str, str, str], Any]) -> None:
    """Calls `ask(mode, feature, url)` for each argument `MODE/FEATURE=URL`; what it raises is what a user sees."""
    for argument in sys.argv[1:]:
        case, url = argument.split("=", 1)
        mode, feature = case.split("/")
        seen: Seen = {"text": f"no end after {SECONDS} s"}
        worker = threading.Thread(target=_one, args=(ask, mode, feature, url, seen), daemon=True)
        worker.start()
        worker.join(SECONDS)
        print(json.dumps({"case": case, **seen}), flush=True)
    os._exit(0)  # whatever a client still holds open


def _one(ask: Callable[[str, str, str], Any], mode: str, feature: str, url: str, seen: Seen) -> None:
    try:
        found = ask(mode, feature, url)
        if inspect.iscoroutine(found):
            found = asyncio.run(found)
        seen.update(found)
    except BaseException as error:
        traceback.print_exc()
        seen.pop("text", None)
        seen["error"] = f"{type(error).__name__}: {error}"
