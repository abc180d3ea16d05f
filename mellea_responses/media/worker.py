"""A PDF's text, found in a process of its own: readers of PDFs are large, and PDFs are made to break them.

Run by path and isolated (`python -I -S worker.py ORDER`), so that it loads nothing but Python and pdfium and sees
nothing of the server's environment. The PDF comes on stdin. The first line of stdout says how it went, the text
follows: `ok PAGES`, `encrypted`, `damaged`, `empty`, `pages` or `characters`. A worker that says none of these died.
"""

import codecs
import json
import signal
import sys
from contextlib import suppress
from typing import Any

FOUND, ENCRYPTED, DAMAGED, EMPTY, PAGES, CHARACTERS = "ok", "encrypted", "damaged", "empty", "pages", "characters"
_NOT_SAID = {code: None for code in (*range(0x20), 0xFFFE, 0xFFFF) if chr(code) not in "\t\n\f\r"}
"""What pdfium puts in for hyphens at the ends of lines, and what no text has."""
_WRONG_PASSWORD = 4


class _Over(Exception):
    """The outcome, where it is not the text."""


def main() -> None:
    """Answers one order."""
    order = json.loads(sys.argv[1])
    sys.path[:] = order["path"]
    confine(order["memory"], order["cpu_seconds"], order["seconds"])
    import pypdfium2 as pdfium  # type: ignore[import-untyped]  # it brings no types

    data = sys.stdin.buffer.read()
    seal()
    try:
        text, pages = read(pdfium, data, order["pages"], order["characters"])
    except _Over as over:
        said = str(over)
    else:
        said = f"{FOUND} {pages}\n{text}" if text.strip() else EMPTY
    sys.stdout.buffer.write(said.encode("utf-8", "replace"))


def confine(memory: int, cpu_seconds: int, seconds: float) -> None:
    """The process kills itself when it wants more; macOS knows no limit of memory, Windows knows none at all.

    Args:
        memory: Bytes of address space.
        cpu_seconds: Of work.
        seconds: Of anything, should the server be gone.
    """
    try:
        import resource
    except ImportError:
        return
    signal.alarm(int(seconds) + 1)
    for kind, limit in (("RLIMIT_AS", memory), ("RLIMIT_CPU", cpu_seconds), ("RLIMIT_CORE", 0), ("RLIMIT_FSIZE", 0)):
        _limit(resource, kind, limit)


def seal() -> None:
    """From here on it opens nothing: no file, no socket. What is still loaded from files comes first."""
    for name in ("utf-8", "utf-16-le"):
        codecs.lookup(name)
    try:
        import resource
    except ImportError:
        return
    _limit(resource, "RLIMIT_NOFILE", 0)


def _limit(resource: Any, kind: str, limit: int) -> None:
    with suppress(AttributeError, ValueError, OSError):  # this system has no such limit, or a lower one
        resource.setrlimit(getattr(resource, kind), (limit, limit))


def read(pdfium: Any, data: bytes, most_pages: int, most_characters: int) -> tuple[str, int]:
    """The text of every page, an empty line between two, and how many pages there are."""
    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as exc:
        raise _Over(ENCRYPTED if getattr(exc, "err_code", None) == _WRONG_PASSWORD else DAMAGED) from None
    count = len(document)
    if count > most_pages:
        raise _Over(PAGES)
    texts: list[str] = []
    for number in range(count):
        text = _page(pdfium, document, number, most_characters)
        most_characters -= len(text)
        texts.append(text)
    return "\n\n".join(texts).strip("\n"), count


def _page(pdfium: Any, document: Any, number: int, most: int) -> str:
    try:
        page = document[number]
        words = page.get_textpage()
        if words.count_chars() > most:
            raise _Over(CHARACTERS)
        text: str = words.get_text_range()
        words.close()
        page.close()
    except pdfium.PdfiumError:
        raise _Over(DAMAGED) from None
    return text.translate(_NOT_SAID).replace("\r\n", "\n").replace("\r", "\n").strip("\n")


if __name__ == "__main__":
    main()
