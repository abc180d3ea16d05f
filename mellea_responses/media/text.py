"""A file's bytes as text, for every kind of file that is text."""

import codecs
import re

from mellea_responses.errors import InvalidRequest

_MARKS = (  # the longer first: UTF-32's begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NAMED = re.compile(
    r"(big5\w*|cp(125\d|932|949)|euc_\w+|gb\w+|iso2022_jp|iso8859-\d+|koi8-[ru]|mac-roman|shift_jis|utf-16-[bl]e)"
)
"""Charsets that are believed when a client names them, as `codecs` calls them. It has others
that are none."""
_CONTROLS = bytes(code for code in (*range(0x20), 0x7F) if code not in b"\t\n\v\f\r\x07\b\x1a\x1b")
"""No text has more than a few of them; terminals' colours and the like are none."""
_ONE_IN = 100


def as_text(data: bytes, charset: str = "") -> str:
    """The text: by its byte order mark, as UTF-8, in the charset that the client names, else as Latin-1.

    Args:
        data: The file.
        charset: What the client says; empty where it says nothing.

    Raises:
        InvalidRequest: it is no text.
    """
    text = _decoded(data, charset)
    plain = text.encode("utf-8", "surrogatepass")  # counting in bytes is a hundred times faster
    if b"\0" in plain or (len(plain) - len(plain.translate(None, _CONTROLS))) * _ONE_IN > len(text):
        raise _no_text()
    return text


def _decoded(data: bytes, charset: str) -> str:
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _strictly(data, name)
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    if (named := _known(charset)) is not None:
        return _strictly(data, named)
    if b"\0" in data:
        raise _no_text()
    try:
        return data.decode("cp1252")  # Latin-1 with letters where that has control characters
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _strictly(data: bytes, name: str) -> str:
    try:
        return data.decode(name)
    except (UnicodeError, LookupError):
        raise InvalidRequest(
            f"The file's text is not valid {name.removesuffix('-sig')}.", code="invalid_file"
        ) from None


def _known(charset: str) -> str | None:
    try:
        name = codecs.lookup(charset).name if charset else ""
    except (LookupError, ValueError):
        return None
    return name if _NAMED.fullmatch(name) else None


def _no_text() -> InvalidRequest:
    return InvalidRequest("The file is neither a PDF nor text, and nothing else is read.", code="invalid_file")
