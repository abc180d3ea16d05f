"""API keys and the owners behind them.

An entry is `KEY` or `NAME=KEY`, divided at the first `=`. One whose only `=` stand at its end is a bare key, as base64
writes it, not a name without one. Several keys under one name are one owner's, so that one can replace another.
"""

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from mellea_responses.errors import Unauthorized

NO_OWNER = ""
SHORT = 16
"""Characters below which a key can be guessed by trying."""
_BASE64 = 28
"""Characters from which on one `=` at the end is base64's and not what an unset variable leaves behind a name."""
_VISIBLE = re.compile(r"[!-~]+")


class KeyProblem(ValueError):
    """Keys that cannot be used. The message never holds a key."""


class Entry(NamedTuple):
    """One key and whose it is; a key without a name stands for itself."""

    name: str | None
    key: str


def read_entry(text: str, where: str) -> Entry:
    """An entry as the owner wrote it.

    Args:
        text: `KEY` or `NAME=KEY`.
        where: How to call it in a complaint, since its own text must not be shown.

    Raises:
        KeyProblem: it holds no key, no name before the `=`, or what no header can carry.
    """
    stem = text.rstrip("=")
    padding = len(text) - len(stem)
    if "=" not in stem:
        if padding == 1 and stem and (len(text) < _BASE64 or len(text) % 4):
            raise KeyProblem(f"{where} ends with `=`: a name without a key, or a key? Write NAME=KEY.")
        name, key = None, text if stem else ""
    else:
        name, _, key = text.partition("=")
    if not key:
        raise KeyProblem(f"{where} is empty.")
    if name == "":
        raise KeyProblem(f"{where} has an empty name before the `=`.")
    if not _VISIBLE.fullmatch(key) or not _VISIBLE.fullmatch(name or key):
        raise KeyProblem(f"{where} holds blanks or characters beyond ASCII, which no header carries.")
    return Entry(name, key)


def read_file(path: str) -> Iterator[Entry]:
    """The entries of a file, one on each line; blank lines and those that begin with `#` do not count.

    Raises:
        KeyProblem: it cannot be read, or holds no key.
    """
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError as exc:
        raise KeyProblem(f"the key file {path} cannot be read: {exc.strerror or type(exc).__name__}.") from None
    except UnicodeError:
        raise KeyProblem(f"the key file {path} is no text.") from None
    found = [(i, line) for i, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")]
    if not found:
        raise KeyProblem(f"the key file {path} holds no key.")
    for i, line in found:
        yield read_entry(line.strip(), f"line {i} of the key file {path}")


def is_open_file(path: str) -> bool:
    """Whether others on this machine can read a file of keys."""
    return os.name == "posix" and bool(Path(path).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def read_entries(given: Iterable[str], file: str | None = None) -> tuple[Entry, ...]:
    """Every key of a server, each once.

    Raises:
        KeyProblem: an entry is wrong, or one key stands under two names.
    """
    entries = [read_entry(text, f"API key {i}") for i, text in enumerate(given, 1)]
    entries += read_file(file) if file is not None else ()
    names: dict[str, str | None] = {}
    for entry in entries:
        known = names.setdefault(entry.key, entry.name)
        if known != entry.name:
            both = " and ".join(sorted(repr(name) if name else "no name" for name in (known, entry.name)))
            raise KeyProblem(f"one API key stands under {both}; each owner needs a key of their own.")
    return tuple(dict.fromkeys(entries))


def warnings(entries: Iterable[Entry], file: str | None) -> Iterator[str]:
    """What the person who starts the server should know; no line holds a key."""
    short = [entry.name or "without a name" for entry in entries if len(entry.key) < SHORT]
    if short:
        yield f"API keys shorter than {SHORT} characters can be guessed: {', '.join(dict.fromkeys(short))}"
    if file is not None and is_open_file(file):
        yield f"others on this machine can read the key file {file}: chmod 600 {file}"


class Keys:
    """The keys that may use this server.

    Neither keys nor names are kept: an owner is an HMAC of the name (or of the key, where it has none), so that stores
    and logs never hold one and another process with the same secret names the same owner.

    Args:
        entries: Keys and their names.
        secret: Ties owners to this server; a random one if left out.
    """

    def __init__(self, entries: Iterable[Entry], secret: bytes | None = None) -> None:
        secret = secret or secrets.token_bytes(32)
        self._salt = secrets.token_bytes(32)
        self._owners = [(self._digest(key.encode()), _owner(secret, name, key)) for name, key in entries]

    def __bool__(self) -> bool:
        return bool(self._owners)

    def owner(self, given: Iterable[bytes]) -> str:
        """The owner whose key a request carries.

        Args:
            given: The keys in its headers.

        Raises:
            Unauthorized: it carries none, a wrong one, or several.
        """
        if not self._owners:
            return NO_OWNER
        keys = list(given)
        # Digests are of one length, and every one is compared: time tells nothing of any key.
        digest = self._digest(keys[0] if keys else b"")
        found: str | None = None
        for known, owner in self._owners:
            if hmac.compare_digest(known, digest):
                found = owner
        if found is None or len(keys) != 1:
            raise Unauthorized("A valid API key is needed: send `Authorization: Bearer KEY`.")
        return found

    def _digest(self, key: bytes) -> bytes:
        # A keyed hash, as HMAC is; OpenSSL's would first let every other thread run.
        return hashlib.blake2b(key, key=self._salt, digest_size=32).digest()


def _owner(secret: bytes, name: str | None, key: str) -> str:
    """Names and keys apart, or a key that is another's name would be that other."""
    kind = f"key {key}" if name is None else f"name {name}"
    return hmac.new(secret, kind.encode(), hashlib.sha256).hexdigest()[:32]
