"""Writes the tables of errors and of steps from the code itself; with `--check`, fails when they differ.

python docs/tables.py [--check]
"""

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
from marked import ROOT, main

from mellea_responses import turn
from mellea_responses.errors import ApiError
from mellea_responses.media import limits


def error_classes(root: type[ApiError] = ApiError) -> Iterator[type[ApiError]]:
    """The tree, parents before their children."""
    if root.__module__ == ApiError.__module__:
        yield root
        for child in root.__subclasses__():
            yield from error_classes(child)


def errors() -> str:
    rows = ["| Code | Status | Type | Class | What happened |", "| --- | --- | --- | --- | --- |"]
    for one in error_classes():
        what = said(one) if one is not ApiError else "The program or the server failed; the log has the cause."
        rows.append(f"| `{one.default_code}` | {one.status} | `{one.type}` | `{one.__name__}` | {what} |")
    return "\n".join(rows)


def special_codes() -> str:
    """Where an error is raised with another code than its class's own: that code and what the client reads."""
    classes = {one.__name__: one for one in error_classes()}
    found: dict[str, tuple[int, list[str]]] = {}
    for path in sorted((ROOT / "mellea_responses").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and called(call) in classes and call.args:
                code = next((keyword.value for keyword in call.keywords if keyword.arg == "code"), None)
                if isinstance(code, ast.Constant):
                    kind = classes[called(call)]
                    found.setdefault(str(code.value), (kind.status, []))[1].append(message(call.args[0]) or said(kind))
    rows = ["| Code | Status | What the client reads |", "| --- | --- | --- |"]
    for code, (status, texts) in sorted(found.items()):
        rows.append(f"| `{code}` | {status} | {'<br>'.join(sorted(set(texts)))} |")
    return "\n".join(rows)


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def message(text: ast.expr) -> str:
    """The message as it is written in the code, with `…` for what is filled in; empty if that is all of it."""
    pieces = text.values if isinstance(text, ast.JoinedStr) else [text]
    written = "".join(str(piece.value) if isinstance(piece, ast.Constant) else "…" for piece in pieces)
    return written.replace("|", "\\|") if re.search(r"\w", written) else ""


def steps() -> str:
    rows = ["| Step | What it says |", "| --- | --- |"]
    rows += [f"| `{written(step)}` | {said(step)} |" for step in get_args(turn.Step)]
    return "\n".join(rows)


def media() -> str:
    """What of pictures and files is read, at most."""
    mib = limits.MIB
    rows = [
        ("Pictures and files in a request", f"{limits.PARTS}"),
        ("A picture", f"{limits.IMAGE_BYTES // mib} MiB and {limits.IMAGE_PIXELS:,} pixels"),
        ("All pictures of a request", f"{limits.REQUEST_PIXELS:,} pixels"),
        ("A file", f"{limits.FILE_BYTES // mib} MiB"),
        ("All files of a request", f"{limits.FILE_CHARACTERS:,} characters of text"),
        ("All PDFs of a request", f"{limits.PDF_PAGES:,} pages and {limits.PDF_SECONDS:g} s"),
        ("The process that reads a PDF", f"{limits.PDF_CPU_SECONDS} s of CPU and {limits.PDF_MEMORY // mib} MiB"),
        ("A picture that is fetched", f"{limits.FETCH_SECONDS:g} s with up to {limits.FETCH_REDIRECTS} redirects"),
        ("All pictures fetched for a request", f"{limits.FETCH_PARTS}, with {limits.FETCH_BYTES // mib} MiB together"),
        ("What was read, kept for the next turns", f"{limits.CACHE_BYTES // mib} MiB, for `--response-ttl` seconds"),
    ]
    return "\n".join(["| What | At most |", "| --- | --- |", *(f"| {what} | {most} |" for what, most in rows)])


def written(step: Any) -> str:
    """How a step is written down, defaults included."""
    fields = [
        field.name if field.required else f"{field.name}={field.default!r}" for field in msgspec.structs.fields(step)
    ]
    return f"{step.__name__}({', '.join(fields)})"


def said(one: type) -> str:
    """A class's docstring on one line."""
    text = re.sub(r"\s+", " ", inspect.getdoc(one) or "")
    if not text:
        raise ValueError(f"{one.__name__} has no docstring")
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main(
        {
            ("docs/errors.md", "errors"): errors(),
            ("docs/errors.md", "special codes"): special_codes(),
            ("docs/files.md", "limits"): media(),
            ("docs/programs.md", "steps"): steps(),
        },
        "docs/tables.py",
    )
