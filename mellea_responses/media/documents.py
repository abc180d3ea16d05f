"""Files as text: what is text already here, PDFs in a process of their own."""

import asyncio
import json
import logging
import os
import re
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from mellea_responses.errors import InvalidRequest
from mellea_responses.media import limits
from mellea_responses.media.inline import Inline, decode
from mellea_responses.media.slots import Slots
from mellea_responses.media.text import as_text
from mellea_responses.wire import items as w

logger = logging.getLogger("mellea_responses.media")

_COMMAND = (sys.executable, "-I", "-S", str(Path(__file__).with_name("worker.py")))
_LIBRARIES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
"""All that the worker sees of the environment: where some systems keep Python's own libraries."""
_MARK = b"%PDF-"
_MARK_WITHIN = 1024
"""Readers of PDFs take this many bytes of anything before the mark."""
_WORDS = {
    "encrypted": "it is a PDF that needs a password",
    "damaged": "it is a damaged PDF",
    "empty": "it is a PDF without text, as scans are; send its pages as images",
    "pages": f"the PDFs of one request may have {limits.PDF_PAGES:,} pages together",
    "characters": f"the files of one request may have {limits.FILE_CHARACTERS:,} characters together",
}
_DIED = "it is a PDF that takes more time or memory than this server gives"


class Budget(msgspec.Struct):
    """What the files of one request may still cost."""

    characters: int = limits.FILE_CHARACTERS
    pages: int = limits.PDF_PAGES
    seconds: float = limits.PDF_SECONDS


class Documents:
    """Reads files.

    Args:
        command: What reads PDFs, as `worker` does.
    """

    def __init__(self, command: Sequence[str] = _COMMAND) -> None:
        self._command = command
        self._slots = Slots(2, waiting=64)

    async def read(self, part: w.InputFile, owner: str, budget: Budget) -> str:
        """The file's text; its cost comes off the budget.

        Raises:
            InvalidRequest: it cannot be read, and why.
            Busy: too many of the owner's files wait to be read.
        """
        file = await asyncio.to_thread(decode, part.file_data or "", limits.FILE_BYTES, "file")
        if _is_pdf(file, part.filename or ""):
            return await self._pdf(file.data, owner, budget)
        if len(file.data) > 4 * budget.characters:  # no charset takes more bytes for a character
            raise _refused("characters")
        return _within(await asyncio.to_thread(as_text, file.data, file.charset), budget)

    async def _pdf(self, data: bytes, owner: str, budget: Budget) -> str:
        async with self._slots.one(owner):
            started = time.monotonic()
            try:
                answer = await self._answer(data, budget)
            finally:
                budget.seconds -= time.monotonic() - started
        outcome, _, text = answer.decode("utf-8", "replace").partition("\n")
        word, _, pages = outcome.partition(" ")
        if word != "ok" or not pages.isdecimal():
            raise _refused(word)
        budget.pages -= int(pages)
        return _within(text, budget)

    async def _answer(self, data: bytes, budget: Budget) -> bytes:
        """Everything the worker says; what it costs ends with this call, whatever it does."""
        if budget.seconds <= 0:
            return b""
        order = {
            "path": _folders(),
            "memory": limits.PDF_MEMORY,
            "cpu_seconds": limits.PDF_CPU_SECONDS,
            "seconds": budget.seconds,
            "pages": budget.pages,
            "characters": budget.characters,
        }
        env = {name: os.environ[name] for name in _LIBRARIES if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            *self._command, json.dumps(order), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env, cwd="/"
        )
        try:
            async with asyncio.timeout(budget.seconds):
                _, answer = await asyncio.gather(_feed(process, data), _hear(process, 4 * budget.characters + 1024))
                status = await process.wait()
        except TimeoutError:
            answer, status = b"", None
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if status != 0:
            logger.warning("a PDF of %d bytes was not read: the worker ended with %s", len(data), status)
        return answer if status == 0 else b""


def _folders() -> list[str]:
    """Where Python looks for modules, for a process that starts elsewhere."""
    return [os.path.abspath(folder) for folder in sys.path if folder]


def _is_pdf(file: Inline, name: str) -> bool:
    """By what it is; only what calls itself a PDF may have something before its mark.

    Raises:
        InvalidRequest: it calls itself a PDF and is none.
    """
    if file.data.startswith(_MARK):
        return True
    if file.kind != "application/pdf" and not re.search(r"\.pdf$", name, re.IGNORECASE):
        return False
    if _MARK not in file.data[:_MARK_WITHIN]:
        raise InvalidRequest("The file is not a PDF.", code="invalid_file")
    return True


async def _feed(process: Process, data: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it has said enough already, or died
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _hear(process: Process, limit: int) -> bytes:
    """What it says, up to a limit that no honest one reaches."""
    assert process.stdout is not None
    said = bytearray()
    while piece := await process.stdout.read(65536):
        said += piece
        if len(said) > limit:
            process.kill()
            return b""
    return bytes(said)


def _within(text: str, budget: Budget) -> str:
    budget.characters -= len(text)
    if budget.characters < 0 or budget.pages < 0:  # others were read at the same time
        raise _refused("characters" if budget.characters < 0 else "pages")
    return text


def _refused(word: str) -> InvalidRequest:
    return InvalidRequest(f"The file cannot be read: {_WORDS.get(word, _DIED)}.", code="invalid_file")
