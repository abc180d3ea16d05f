"""Bytes as text: what is text is read, in the charset it is in; what is none is refused."""

import codecs
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mellea_responses.errors import InvalidRequest
from mellea_responses.media.text import as_text

WORDS = "Grüße, 世界 – «ça va»\n"

texts = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1).map(lambda text: "a\n\t" + text)


@given(texts)
def test_utf_8_is_read_as_it_is(text: str) -> None:
    assert as_text(text.encode()) == text


@given(texts, st.sampled_from(["utf-8-sig", "utf-16", "utf-32"]))
def test_a_byte_order_mark_decides_and_is_no_part_of_the_text(text: str, charset: str) -> None:
    assert as_text(text.encode(charset), "iso-8859-1") == text


def test_a_mark_of_either_order_is_known() -> None:
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        assert as_text(mark + WORDS.encode(name)) == WORDS


def test_what_is_not_utf_8_is_read_as_the_old_charset_of_the_west() -> None:
    assert as_text("naïve café".encode("latin-1")) == "naïve café"
    assert as_text("it’s “so” – €5".encode("cp1252")) == "it’s “so” – €5"
    assert as_text(b"caf\xe9 " * 50 + b"\x81") == "café " * 50 + "\x81"


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("shift_jis", "日本語"), ("euc-kr", "한국어"), ("gb18030", "中文"), ("koi8-r", "Привет"),
        ("windows-1251", "Привет"), ("iso-8859-2", "žluťoučký"), ("utf-16le", "Grüße"), ("big5", "中文"),
    ],
)  # fmt: skip
def test_a_charset_that_the_client_names_is_believed(charset: str, text: str) -> None:
    assert as_text(text.encode(charset), charset) == text


@pytest.mark.parametrize("charset", ["punycode", "idna", "rot13", "zlib", "hex", "unicode_escape", "raw-unicode-escape",
                                     "utf-7", "undefined", "no-such", "../x", "\x00", ""])  # fmt: skip
def test_a_charset_that_is_none_is_not_believed(charset: str) -> None:
    assert as_text("naïve \\u0041 +AGE-".encode("latin-1"), charset) == "naïve \\u0041 +AGE-"


def test_a_mark_or_a_charset_that_does_not_hold_is_the_client_s_mistake() -> None:
    for data, charset in ((codecs.BOM_UTF8 + b"\xff", ""), (codecs.BOM_UTF16_LE + b"a", ""), (b"\xff\xff", "gb18030")):
        with pytest.raises(InvalidRequest, match="not valid"):
            as_text(data, charset)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"a,b\x00c,d\n",
        b"\x01\x02\x03\x04 hello",
        b"PK\x03\x04\x14\x00\x06\x00\x08\x00\x00\x00!\x00 word/document.xml",
        b"\x7fELF\x02\x01\x01\x00",
        b"\xff\xd8\xff\xe0\x00\x10JFIF",
        b"\xff\xfe" + b"\x01\x00" * 8,
        random.Random(1).randbytes(64),
        random.Random(2).randbytes(4096).replace(b"\0", b"\1"),
    ],
)
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="neither a PDF nor text"):
        as_text(data)


def test_colours_of_a_terminal_and_form_feeds_are_text() -> None:
    for text in ("\x1b[31mred\x1b[0m", "page one\fpage two", "a\r\nb\r\n", "abc\x1a", "\x07done"):
        assert as_text(text.encode()) == text


def test_random_bytes_are_hardly_ever_text() -> None:
    def is_text(data: bytes) -> bool:
        try:
            as_text(data)
        except InvalidRequest:
            return False
        return True

    dice = random.Random(3)
    assert not any(is_text(dice.randbytes(256)) for _ in range(500))
