"""Parts of pages that are written from the code: everything between `<!-- NAME -->` and `<!-- end -->`."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def filled(page: str, name: str, text: str) -> str:
    """The page with its part `name` replaced.

    Raises:
        ValueError: The page has no such part, or more than one.
    """
    part = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    page, found = part.subn(lambda match: f"{match[1]}\n{text.strip()}\n\n{match[2]}", page)
    if found != 1:
        raise ValueError(f"expected one part named {name!r}, found {found}")
    return page


def main(parts: Mapping[tuple[str, str], str], script: str) -> None:
    """Writes each `(page, name)`; with `--check` on the command line, fails where a page differs instead."""
    stale: set[str] = set()
    for (path, name), text in parts.items():
        page = ROOT / path
        before = page.read_text("utf-8")
        after = filled(before, name, text)
        if "--check" not in sys.argv[1:]:
            page.write_text(after, "utf-8")
        elif before != after:
            stale.add(path)
    if stale:
        sys.exit(f"{', '.join(sorted(stale))}: not what the code says; run `python {script}`")
