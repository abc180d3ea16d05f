"""What every driver in Python needs: its arguments, a picture, and one line of JSON for each feature."""

import asyncio
import inspect
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

SECONDS = 40
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PIXEL = f"data:image/png;base64,{DOT}"
Seen = dict[str, Any]


def main(ask: Callable[[str, str, str], Any]) -> None:
    """Calls `ask(mode, feature, url)` for each `FEATURE=URL` argument; what it raises is what a user sees."""
    mode, *pairs = sys.argv[1:]
    for pair in pairs:
        feature, url = pair.split("=", 1)
        seen: Seen = {"text": f"no end after {SECONDS} s"}
        worker = threading.Thread(target=_one, args=(ask, mode, feature, url, seen), daemon=True)
        worker.start()
        worker.join(SECONDS)
        print(json.dumps({"feature": feature, **seen}), flush=True)
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
