"""Keys as an owner writes them, and what a request has to say to be one of theirs."""

import hmac
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mellea_responses.errors import Unauthorized
from mellea_responses.http import keys
from mellea_responses.http.keys import Entry, KeyProblem, Keys, read_entries, read_entry, warnings
from mellea_responses.settings import Settings
from support.raw import Request, ask, get, posting
from support.serving import serving

LONG = "sk-0123456789abcdefghij"
BASE64 = "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA="


@pytest.mark.parametrize(
    ("text", "name", "key"),
    [
        ("abacus", None, "abacus"),
        ("ada=abacus", "ada", "abacus"),
        ("ada@example.org=abacus", "ada@example.org", "abacus"),
        ("ada=abc==", "ada", "abc=="),
        ("ada=a=b", "ada", "a=b"),
        ("abc==", None, "abc=="),
        (BASE64, None, BASE64),
        (f"ada={BASE64}", "ada", BASE64),
    ],
)
def test_an_entry_is_a_key_or_a_name_and_a_key(text: str, name: str | None, key: str) -> None:
    assert read_entry(text, "it") == Entry(name, key)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("=", "is empty"),
        ("==", "is empty"),
        ("ada=", "a name without a key"),
        ("a-rather-long-application=", "a name without a key"),
        ("=abacus", "empty name"),
        (" abacus", "blanks"),
        ("ada=aba cus", "blanks"),
        ("ada=abacus\n", "blanks"),
        ("ada byron=abacus", "blanks"),
        ("ada=abäcus", "ASCII"),
        ("ädä=abacus", "ASCII"),
        ("ada=aba\x00cus", "ASCII"),
    ],
)
def test_what_is_no_entry_is_refused_and_not_repeated(text: str, said: str) -> None:
    with pytest.raises(KeyProblem, match=said) as refused:
        read_entry(text, "API key 3")

    assert str(refused.value).startswith("API key 3")
    assert not any(part in str(refused.value) for part in ("aba", "abä"))


def test_one_name_may_have_several_keys_but_one_key_not_several_names() -> None:
    assert len(read_entries(["ada=old", "ada=new", "ada=new", "plain", "plain"])) == 3

    for others in (["ada=same", "grace=same"], ["ada=same", "same"], ["same", "ada=same"]):
        with pytest.raises(KeyProblem, match="ada") as refused:
            read_entries(others)
        assert "same" not in str(refused.value)


def test_a_file_holds_one_key_on_each_line(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# who may use it\n\nada=abacus  \r\n   # later\n{BASE64}\n")

    assert read_entries(["grace=compiler"], str(file)) == (
        Entry("grace", "compiler"),
        Entry("ada", "abacus"),
        Entry(None, BASE64),
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (b"", "holds no key"),
        (b"# nothing\n\n", "holds no key"),
        (b"\xff\xfe", "no text"),
        (b"fine\nada=\n", "line 2"),
    ],
)
def test_a_file_without_keys_is_refused_by_its_name(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(KeyProblem, match=said) as refused:
        read_entries([], str(file))

    assert str(file) in str(refused.value)


def test_short_keys_and_open_files_are_worth_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"ada={LONG}\n")
    file.chmod(0o644)
    entries = read_entries(["grace=short", "tiny"], str(file))

    told = list(warnings(entries, str(file)))
    file.chmod(0o600)
    quiet = list(warnings(read_entries([], str(file)), str(file)))

    assert len(told) == 2
    assert "grace" in told[0]
    assert not any(key in " ".join(told) for key in ("short,", "tiny", LONG))
    assert "chmod 600" in told[1]
    assert not quiet


def test_a_key_that_reads_like_another_s_name_is_not_that_owner() -> None:
    judge = Keys(read_entries(["ada=abacus", "ada", "name=x"]), b"secret")

    assert len({judge.owner([key]) for key in (b"abacus", b"ada", b"x")}) == 3


def test_keys_of_one_name_are_one_owner_here_and_in_the_next_process() -> None:
    entries = read_entries(["ada=old", "ada=new"])

    owners = {Keys(entries, b"secret").owner([key]) for key in (b"old", b"new")}

    assert len(owners) == 1
    assert Keys(entries, b"other").owner([b"old"]) not in owners


@pytest.mark.parametrize("given", [[], [b""], [b"abacu"], [b"abacuss"], [b"ABACUS"], [b"abacus", b"abacus"], [b"\xff"]])
def test_nothing_but_the_whole_key_opens(given: list[bytes]) -> None:
    with pytest.raises(Unauthorized):
        Keys(read_entries(["ada=abacus"])).owner(given)


@pytest.mark.parametrize("given", [b"first-key", b"last-key", b"none", b"", b"x" * 10_000])
def test_every_key_is_compared_at_one_length_whichever_is_given(given: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[tuple[int, int]] = []

    def compare(a: bytes, b: bytes) -> bool:
        lengths.append((len(a), len(b)))
        return hmac.compare_digest(a, b)

    judge = Keys(read_entries(["first-key", "a-far-longer-key-in-the-middle", "last-key"]))
    monkeypatch.setattr(keys, "hmac", _Hmac(compare))
    with suppress(Unauthorized):
        judge.owner([given])

    assert lengths == [(32, 32)] * 3


class _Hmac:
    """The module with another comparison."""

    def __init__(self, compare: Any) -> None:
        self.compare_digest = compare
        self.digest = hmac.digest


def test_no_key_is_kept_or_shown() -> None:
    settings = Settings(api_keys=(f"ada={LONG}",), port=9000)
    judge = Keys(read_entries(settings.api_keys))

    assert LONG not in repr(settings)
    assert repr(settings) == "Settings(port=9000, api_keys=1)"
    assert LONG not in repr(settings.__rich_repr__())
    assert LONG not in repr(vars(judge))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": f"Bearer {LONG}"}, 200),
        ({"authorization": f"bearer   {LONG}"}, 200),
        ({"api-key": LONG}, 200),
        ({"x-api-key": LONG}, 200),
        ({}, 401),
        ({"authorization": LONG}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": f"Basic {LONG}"}, 401),
        ({"authorization": f"Bearer {LONG}x"}, 401),
        ({"authorization": f"Bearer ada={LONG}"}, 401),
        ({"authorization": "Bearer wrong", "api-key": LONG}, 401),
        ({"x-api-key": "wrong", "api-key": LONG}, 200),
        ({"cookie": f"api-key={LONG}"}, 401),
    ],
    ids=str,
)
async def test_a_key_comes_as_a_bearer_token_or_in_a_header_of_its_own(headers: dict[str, str], status: int) -> None:
    async with serving(lambda turn: "x", api_keys=(f"ada={LONG}",)) as url:
        answers = [
            await ask(url, posting({"input": "x"}, **headers)),
            await ask(url, Request("GET", "/v1/models", headers=headers)),
        ]

    assert [answer.status for answer in answers] == [status] * 2
    assert all(LONG not in answer.body.decode() + str(answer.headers) for answer in answers)


async def test_a_key_in_the_address_opens_nothing() -> None:
    async with serving(lambda turn: "x", api_keys=(LONG,)) as url:
        answer = await get(url, f"/v1/models?api_key={LONG}&key={LONG}&access_token={LONG}")

    assert answer.status == 401


async def test_keys_of_a_file_open_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "keys"
    file.write_text(f"ada={LONG}\n")
    with caplog.at_level(logging.DEBUG):
        async with serving(lambda turn: "x", api_key_file=str(file)) as url:
            answers = [await ask(url, posting({"input": "x"}, authorization=f"Bearer {key}")) for key in (LONG, "no")]

    assert [answer.status for answer in answers] == [200, 401]
    assert LONG not in caplog.text
