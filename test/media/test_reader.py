"""What a turn brings along: read once, kept for its owner, named exactly where it cannot be read."""

import asyncio
import base64
from typing import Any

import pytest

from mellea_responses.errors import Busy, InvalidRequest
from mellea_responses.media import limits
from mellea_responses.media import reader as module
from mellea_responses.media.cache import Cache
from mellea_responses.media.documents import Budget
from mellea_responses.media.parts import check_media
from mellea_responses.media.reader import Reader
from mellea_responses.turn import Turn
from mellea_responses.wire import items as w
from mellea_responses.wire.request import CreateResponse
from support.pictures import data_url, picture, picture_bytes

WEB = "https://pictures.example/a.png"


def file(text: str = "words", name: str = "a.txt") -> w.InputFile:
    return w.InputFile(filename=name, file_data=base64.b64encode(text.encode()).decode())


def said(*parts: w.Part, own_id: str = "m1") -> w.Message:
    return w.Message(own_id, "completed", "user", list(parts))


def turn(*items: w.Item, history: tuple[w.Item, ...] = ()) -> Turn:
    return Turn(CreateResponse(), items, history)


class Documents:
    """Counts what is read; a file named `bad` cannot be."""

    def __init__(self) -> None:
        self.read_names: list[Any] = []

    async def read(self, part: w.InputFile, _owner: str, budget: Budget) -> str:
        self.read_names.append(part.filename)
        await asyncio.sleep(0)
        if part.filename == "bad":
            raise InvalidRequest("no text")
        if part.filename == "busy":
            raise Busy("later")
        budget.characters -= 1
        return f"read {part.filename}"


class Fetcher:
    """The web of these tests: pictures by address, and how many are fetched at once."""

    def __init__(self, **pages: bytes) -> None:
        self.pages = {WEB: picture_bytes("JPEG"), **pages}
        self.fetched: list[str] = []
        self.here = self.most = 0

    async def fetch(self, url: str, _owner: str) -> bytes:
        self.fetched.append(url)
        self.here += 1
        self.most = max(self.most, self.here)
        await asyncio.sleep(0)
        self.here -= 1
        if url not in self.pages:
            raise InvalidRequest("The image could not be fetched from its address.")
        return self.pages[url]


class World:
    def __init__(self, ttl: float = 60, **more: Any) -> None:
        self.documents, self.web = Documents(), Fetcher()
        self.reader = Reader(ttl, documents=self.documents, fetcher=self.web, **more)  # type: ignore[arg-type]  # fakes

    async def read(self, *items: w.Item, history: tuple[w.Item, ...] = (), owner: str = "ada") -> dict[w.Part, str]:
        return await self.reader.read(turn(*items, history=history), items, owner)

    async def refused(self, *items: w.Item, **more: Any) -> InvalidRequest:
        with pytest.raises(InvalidRequest) as caught:
            await self.read(*items, **more)
        return caught.value


# ---------------------------------------------------------------- what is read


async def test_files_and_pictures_of_the_web_are_read_and_the_items_stay_as_they_came() -> None:
    world, asked = World(), said(w.InputText("see"), file(), w.InputImage(WEB), w.InputImage(picture("PNG")))
    before = repr(asked)

    read = await world.read(asked)

    assert read == {asked.content[1]: "read a.txt", asked.content[2]: data_url(picture_bytes("JPEG"), "image/jpeg")}
    assert repr(asked) == before


async def test_a_turn_of_words_costs_nothing() -> None:
    world = World()

    assert await world.read(said(w.InputText("hi")), w.FunctionCallOutput("o", "c", "out")) == {}
    assert world.documents.read_names == []


async def test_what_stands_twice_is_read_once_in_a_request_and_over_turns() -> None:
    world, asked = World(), said(file(), w.InputImage(WEB), file(), w.InputImage(WEB))

    first = await world.read(asked, said(file(), own_id="m2"))
    again = await world.read(said(w.InputText("and?")), history=(asked,))

    assert again == first
    assert (world.documents.read_names, world.web.fetched) == (["a.txt"], [WEB])


async def test_another_owner_gains_nothing_from_what_was_read() -> None:
    world = World()

    for owner in ("ada", "bob", "ada", "bob"):
        await world.read(said(file(), w.InputImage(WEB)), owner=owner)

    assert (world.documents.read_names, world.web.fetched) == (["a.txt"] * 2, [WEB] * 2)


async def test_without_a_time_to_live_nothing_is_kept() -> None:
    world = World(ttl=0)

    for _ in range(2):
        await world.read(said(file(), w.InputImage(WEB), w.InputImage(picture("PNG"))))

    assert world.documents.read_names == ["a.txt"] * 2
    assert world.reader.cache.bytes == 0


# ---------------------------------------------------------------- where it cannot be read


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (file(name="bad"), "no text"),
        (w.InputImage(WEB + "?gone"), "could not be fetched"),
        (w.InputImage(data_url(b"hello")), "no PNG, JPEG"),
        (w.InputImage(data_url(picture_bytes("JPEG")[:-200])), "."),
    ],
)
async def test_a_part_that_cannot_be_read_is_named_where_the_client_put_it(part: Any, words: str) -> None:
    """The places are those of the request, also where a call that the client left out was put in before them."""
    world = World()
    call = w.FunctionCall("f", "c", "look", "{}", "completed")
    given = [said(w.InputText("a"), file()), w.FunctionCallOutput("o", "c", [w.InputText("b"), part])]

    with pytest.raises(InvalidRequest, match=words) as caught:
        await world.reader.read(turn(given[0], call, given[1]), given, "ada")

    assert caught.value.param == "input[1].output[1]"


async def test_of_equal_parts_the_first_is_named() -> None:
    first, second, third = (file(name="bad") for _ in range(3))

    error = await World().refused(said(file(), first, second), said(third, own_id="m2"))

    assert error.param == "input[0].content[1]"


async def test_busy_is_no_fault_of_a_part() -> None:
    with pytest.raises(Busy) as caught:
        await World().read(said(file(name="busy")))
    with pytest.raises(Busy):
        await World().read(said(w.InputText("?")), history=(said(file(name="busy")),))

    assert caught.value.param == ""


async def test_a_picture_that_is_not_what_it_says_is_refused_when_it_comes_from_the_web_too() -> None:
    world = World()
    for data in (b"", b"<svg/>", b"\x89PNG\r\n\x1a\n", picture_bytes("PNG")[:40]):
        world.web.pages[WEB] = data
        error = await world.refused(said(w.InputText("see"), w.InputImage(WEB)))
        assert error.param == "input[0].content[1]"


async def test_a_program_that_reads_text_alone_refuses_pictures_before_anything_is_fetched_or_read() -> None:
    world = World(enclosed="refuse")

    seen = await world.refused(said(file(), w.InputText("see"), w.InputImage(WEB)))
    heard = await world.refused(said(w.InputAudio(w.AudioData("AA==", "wav"))))

    assert (seen.param, seen.message) == ("input[0].content[2]", "This model cannot see images; send text.")
    assert (heard.param, heard.message) == ("input[0].content[0]", "This model cannot hear; send text.")
    assert (world.documents.read_names, world.web.fetched) == ([], [])
    assert len(await world.read(said(file()))) == 1


async def test_pictures_in_the_request_pass_unseen_where_a_program_takes_the_turn_itself() -> None:
    world = World(enclosed="pass")

    assert await world.read(said(w.InputImage(data_url(b"hello")))) == {}
    assert len(await world.read(said(w.InputImage(WEB)))) == 1


# ---------------------------------------------------------------- limits


def test_so_many_parts_are_refused_before_anything_is_read() -> None:
    parts = [w.InputImage(picture("PNG"))] * 1000

    with pytest.raises(InvalidRequest, match="At most 250") as caught:
        check_media([said(w.InputText("see"), *parts[:200]), w.FunctionCallOutput("o", "c", parts)])

    assert caught.value.param == "input[1].output[50]"


async def test_the_pictures_of_a_request_share_pixels_and_bytes_and_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    many = [w.InputImage(f"{WEB}?{n}") for n in range(21)]
    world.web.pages |= {f"{WEB}?{n}": picture_bytes("PNG") for n in range(21)}

    await world.read(said(*many[:20]))
    assert 1 < world.web.most <= module.AT_ONCE
    error = await world.refused(said(*many))
    assert (error.param, len(world.web.fetched)) == ("input[0].content[20]", 20)

    pictures = [w.InputImage(picture("PNG"), detail) for detail in ("low", "high", "auto")]
    monkeypatch.setattr(module, "Costs", lambda: real_costs(pixels=15))
    assert "pixels together" in (await world.refused(said(*pictures))).message

    monkeypatch.setattr(module, "Costs", lambda: real_costs(fetched_bytes=10))
    assert "MiB" in (await World().refused(said(w.InputImage(WEB)))).message


real_costs = module.Costs


async def test_an_entry_that_is_larger_than_the_budget_is_not_kept_and_the_oldest_goes_first() -> None:
    now = 0.0
    cache = Cache(2000, 10, lambda: now)
    cache.put(b"huge", "a" * 3000)
    for key in (b"1", b"2", b"3"):
        cache.put(key, "a" * 500)

    assert [cache.get(key) is not None for key in (b"huge", b"1", b"2", b"3")] == [False, False, True, True]
    assert cache.bytes <= 2000
    now = 11.0
    assert (cache.get(b"3"), cache.bytes) == (None, 0)


def test_no_two_sources_share_a_key() -> None:
    keys = {
        Cache.key("a", "b", "c"),
        Cache.key("a", "bc"),
        Cache.key("ab", "c"),
        Cache.key("a", "b", ""),
        Cache.key(""),
    }

    assert len(keys) == 5


# ---------------------------------------------------------------- earlier turns


async def test_a_part_of_an_earlier_turn_that_is_gone_is_left_out_unless_that_is_to_be_an_error() -> None:
    history = (said(w.InputImage(WEB + "?gone"), file(name="bad"), file(), own_id="m0"),)

    world = World()
    assert list(await world.read(said(w.InputText("?")), history=history)) == [history[0].content[2]]

    error = await World(strict=True).refused(said(w.InputText("?")), history=history)
    assert (error.param, error.message) == ("input", "A file or image of an earlier turn can no longer be read.")


async def test_earlier_turns_are_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AGAIN_SECONDS", 0.05)
    world = World()

    async def never(_url: str, _owner: str) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    world.web.fetch = never
    history = (said(file(), w.InputImage(WEB), own_id="m0"),)

    assert list(await world.read(said(w.InputText("?")), history=history)) == [history[0].content[0]]


async def test_a_file_without_a_fetcher_and_a_picture_that_needs_one() -> None:
    reader = Reader(60, documents=Documents())  # type: ignore[arg-type]  # a fake
    asked = said(file(), w.InputImage(WEB))

    with pytest.raises(InvalidRequest) as caught:
        await reader.read(turn(asked), [asked], "ada")

    assert caught.value.param == "input[0].content[1]"
