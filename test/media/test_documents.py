"""Files become text: PDFs in a process of their own, whose end is never the server's."""

import asyncio
import base64
import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mellea_responses.errors import InvalidRequest
from mellea_responses.media import documents, limits
from mellea_responses.media.documents import Budget, Documents
from mellea_responses.wire import items as w
from support.pdf import bomb, encrypted, pdf


def part(data: bytes, name: str = "", kind: str | None = None) -> w.InputFile:
    text = base64.b64encode(data).decode()
    return w.InputFile(filename=name, file_data=text if kind is None else f"data:{kind};base64,{text}")


async def read(data: bytes, name: str = "", kind: str | None = None, budget: Budget | None = None, **more: Any) -> str:
    return await Documents(**more).read(part(data, name, kind), "ada", budget or Budget())


def worker(code: str) -> list[str]:
    """Something else in the worker's place."""
    return [sys.executable, "-I", "-S", "-c", code]


# ---------------------------------------------------------------- what is read


async def test_a_pdf_is_read_page_by_page_by_whatever_it_calls_itself() -> None:
    data = pdf("Hello (world) café\nsecond line", "page two")

    for name, kind in (("a.pdf", None), ("", "application/pdf"), ("", None), ("a.txt", "text/plain")):
        assert await read(data, name, kind) == "Hello (world) café\nsecond line\n\npage two"


async def test_what_stands_before_the_mark_of_a_pdf_is_passed_over() -> None:
    assert await read(b"\n \n" + pdf("Hello"), "a.PDF") == "Hello"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.txt", "text/plain"), ("a.md", "text/markdown"), ("a.csv", "text/csv"), ("a.json", "application/json"),
        ("a.xml", "application/xml"), ("a.yaml", "application/x-yaml"), ("a.py", "text/x-python"),
        ("a.html", "text/html"),
        ("a.svg", "image/svg+xml"), ("Makefile", "application/octet-stream"), ("a.docx", None), ("", None),
    ],
)  # fmt: skip
async def test_every_kind_of_text_is_text(name: str, kind: str | None) -> None:
    assert await read(b'{"a": "\xc3\xa9"}\n', name, kind) == '{"a": "é"}\n'


async def test_the_charset_of_a_data_url_holds() -> None:
    assert await read("日本".encode("shift_jis"), "a.txt", "text/plain;charset=Shift_JIS") == "日本"


# ---------------------------------------------------------------- what is not


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        (encrypted("hello", "secret"), "a.pdf", "needs a password"),
        (pdf(""), "a.pdf", "without text, as scans"),
        (pdf("", " ", "\n"), "a.pdf", "without text, as scans"),
        (b"%PDF-1.7\n", "a.pdf", "damaged"),
        (pdf("Hello")[:200], "a.pdf", "damaged"),
        (b"%PDF", "a.pdf", "not a PDF"),
        (b"hello", "a.pdf", "not a PDF"),
        (b"PK\x03\x04\x00\x00", "a.docx", "neither a PDF nor text"),
        (bytes(100), "a.txt", "neither a PDF nor text"),
    ],
)
async def test_what_cannot_be_read_says_why(data: bytes, name: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        await read(data, name)


async def test_pages_characters_and_bytes_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="pages"):
        await read(pdf(*"abc"), budget=Budget(pages=2))
    with pytest.raises(InvalidRequest, match="characters"):
        await read(pdf("a" * 50), budget=Budget(characters=49))
    with pytest.raises(InvalidRequest, match="characters"):
        await read(b"a" * 50, budget=Budget(characters=49))

    monkeypatch.setattr(limits, "FILE_BYTES", 2**20)
    with pytest.raises(InvalidRequest, match="larger than 1 MiB"):
        await read(b"a" * (2**20 + 1))


async def test_the_files_of_one_request_share_a_budget() -> None:
    budget, reader = Budget(characters=10, pages=3), Documents()
    await reader.read(part(pdf("abcd", "ef")), "ada", budget)

    assert (budget.characters, budget.pages) == (2, 1)
    assert 0 < budget.seconds < limits.PDF_SECONDS
    with pytest.raises(InvalidRequest, match="characters"):
        await reader.read(part(b"abc"), "ada", budget)


# ---------------------------------------------------------------- a worker that fails


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.kill(os.getpid(), 9)",
        "import os; os.abort()",
        "raise SystemExit(3)",
        "import sys; sys.stdin.close(); raise MemoryError",
        "print('ok 1'); print('half'); raise SystemExit(1)",
        "print('anything else')",
        "print('ok many')",
        "",
        "while True: print('ok 1' * 10000)",
    ],
)
async def test_a_worker_that_dies_or_babbles_is_the_file_s_failure(code: str) -> None:
    with pytest.raises(InvalidRequest, match="more time or memory"):
        await read(pdf("Hello"), command=worker(code), budget=Budget(characters=1000))


async def test_a_worker_that_hangs_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

    with pytest.raises(InvalidRequest, match="more time or memory"):
        await read(pdf("Hello"), command=worker(code), budget=Budget(seconds=1))

    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


async def test_a_request_that_is_given_up_leaves_no_worker(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    task = asyncio.create_task(read(pdf("Hello"), command=worker(code)))
    while not (note.exists() and note.read_text()):  # noqa: ASYNC110  # another process tells
        await asyncio.sleep(0.01)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
    gc.collect()


async def test_time_that_is_spent_starts_no_worker() -> None:
    with pytest.raises(InvalidRequest, match="more time or memory"):
        await read(pdf("Hello"), command=["/no/such/program"], budget=Budget(seconds=0))


async def test_a_pdf_that_unfolds_into_gigabytes_ends_its_worker_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PDF_MEMORY", 128 * limits.MIB)
    data = bomb(64 * limits.MIB)
    assert len(data) < limits.MIB

    with pytest.raises(InvalidRequest, match="more time or memory"):
        await read(data)


async def test_a_worker_that_computes_for_ever_is_stopped_by_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PDF_CPU_SECONDS", 1)
    source = Path(documents.__file__).with_name("worker.py")
    code = (
        f"import runpy; worker = runpy.run_path({str(source)!r}); import sys, json; order = json.loads(sys.argv[1])\n"
        "worker['confine'](order['memory'], order['cpu_seconds'], order['seconds'])\n"
        "while True: pass"
    )

    with pytest.raises(InvalidRequest, match="more time or memory"):
        await read(pdf("Hello"), command=worker(code))


async def test_a_worker_sees_nothing_of_the_server_and_opens_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SECRET_KEY", "canary")
    source = Path(documents.__file__).with_name("worker.py")
    code = (
        f"import runpy, os, socket, sys; worker = runpy.run_path({str(source)!r})\n"
        f"worker['confine'](2**29, 5, 5); worker['seal'](); sys.stdin.buffer.read()\n"
        "found = [str(sorted(os.environ)), os.getcwd()]\n"
        f"for do in (lambda: open({str(tmp_path / 'x')!r}, 'w'), lambda: open('/etc/hostname'), socket.socket):\n"
        "    try: do(); found.append('opened')\n"
        "    except OSError as error: found.append(error.strerror)\n"
        "print('ok 1'); print(*found, sep='|', end='')"
    )

    said = await read(pdf("Hello"), command=worker(code))

    names, folder, *opened = said.split("|")
    assert "SECRET" not in names
    assert folder == "/"
    assert opened == ["Too many open files"] * 3


# ---------------------------------------------------------------- many at once


async def test_many_files_are_all_read_two_at_a_time() -> None:
    one, reader = part(pdf("Hello")), Documents(worker("print('ok 1')\nprint('text', end='')"))

    answers = await asyncio.gather(*(reader.read(one, "ada", Budget()) for _ in range(20)))

    assert answers == ["text"] * 20
