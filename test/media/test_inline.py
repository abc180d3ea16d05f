"""Base64 as clients really send it: with a data URL's head or without, wrapped, URL-safe, unpadded."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mellea_responses.errors import InvalidRequest
from mellea_responses.media.inline import Inline, decode, is_data_url

DATA = bytes(range(256)) * 2
PLAIN = base64.b64encode(DATA).decode()


@given(st.binary(min_size=1, max_size=300), st.sampled_from(["", "data:a/b;base64,"]), st.booleans(), st.booleans())
def test_what_was_encoded_comes_back_however_it_was_spelled(data: bytes, head: str, safe: bool, padded: bool) -> None:
    text = (base64.urlsafe_b64encode if safe else base64.b64encode)(data).decode()

    assert decode(head + (text if padded else text.rstrip("=")), 1000, "file").data == data


@pytest.mark.parametrize(
    "text",
    [
        base64.encodebytes(DATA).decode(),
        base64.encodebytes(DATA).decode().replace("\n", "\r\n"),
        f"  {PLAIN}\n",
        PLAIN.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
    ],
)
def test_line_breaks_and_percent_signs_change_nothing(text: str) -> None:
    assert decode(text, 1000, "file").data == DATA
    assert decode(f"data:text/plain;base64,{text}", 1000, "file").data == DATA


@pytest.mark.parametrize(
    ("head", "kind", "charset"),
    [
        ("data:text/csv;base64,", "text/csv", ""),
        ("DATA:Text/CSV;BASE64,", "text/csv", ""),
        ("data:;base64,", "", ""),
        ("data:text/plain;charset=UTF-16LE;base64,", "text/plain", "utf-16le"),
        ('data:text/plain;charset="latin1";name="a, b.txt";base64,', "text/plain", "latin1"),
        ("data:application/pdf;name=report.pdf;base64,", "application/pdf", ""),
        ("data:application/vnd.oasis+xml; charset=utf-8; base64,", "application/vnd.oasis+xml", "utf-8"),
    ],
)
def test_the_head_of_a_data_url_may_have_parameters(head: str, kind: str, charset: str) -> None:
    assert is_data_url(head)
    assert decode(head + PLAIN, 1000, "file") == Inline(DATA, kind, charset)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data:text/plain,hello", "base64"),
        ("data:text/plain;charset=utf-8,hello", "base64"),
        ("data:" + ";a=b" * 400 + ";base64,AAAA", "base64"),
        ("!!!!", "broken"),
        ("AAAA=AAA", "broken"),
        ("AAAAA", "broken"),
        ("AÄAA", "broken"),
        ("AA\ud800A", "broken"),
        ("AA%GGAA", "broken"),
        ("", "empty"),
        ("data:text/plain;base64,", "empty"),
        ("====", "empty"),
        (base64.b64encode(bytes(1001)).decode(), "larger"),
        ("A" * 2**20, "larger"),
    ],
)
def test_what_is_no_base64_is_refused_and_says_why(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        decode(text, 1000, "file")
