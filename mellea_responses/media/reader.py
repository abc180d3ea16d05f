"""Reads what a turn brings along besides text, before anything is said about it.

The items stay as they came, for the store and for comparing. What was read of their parts goes into `Turn.media`: the
text of a file, and the picture that stood at an address, as a data URL.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from mellea_responses.errors import InvalidRequest
from mellea_responses.media import images, limits
from mellea_responses.media.cache import Cache
from mellea_responses.media.documents import Budget, Documents
from mellea_responses.media.inline import is_data_url
from mellea_responses.media.parts import Media, media
from mellea_responses.media.slots import Slots
from mellea_responses.settings import Settings
from mellea_responses.turn import Turn
from mellea_responses.wire import items as w

if TYPE_CHECKING:
    from mellea_responses.media.remote import Fetcher

logger = logging.getLogger("mellea_responses.media")

Enclosed = Literal["refuse", "look", "pass"]
AT_ONCE = 4
"""Parts of one request that are read at the same time."""


class Costs(msgspec.Struct):
    """What the parts of one request may still cost together."""

    files: Budget = msgspec.field(default_factory=Budget)
    pixels: int = limits.REQUEST_PIXELS
    fetched_bytes: int = limits.FETCH_BYTES


class Reader:
    """Reads files and pictures.

    Args:
        ttl: Seconds that what was read is kept for the next turns; 0 keeps nothing.
        enclosed: What to do with pictures in the request itself: refuse them with sounds, look at them, or pass them
            on as they came.
        strict: Refuse a turn whose history holds what can no longer be read, instead of telling the model.
        fetcher: What fetches pictures from the web; None leaves them unread.
        documents: What reads files.
    """

    def __init__(
        self,
        ttl: float,
        *,
        enclosed: Enclosed = "look",
        strict: bool = False,
        fetcher: "Fetcher | None" = None,
        documents: Documents | None = None,
    ) -> None:
        self._enclosed, self._strict, self.fetcher = enclosed, strict, fetcher
        self._documents = documents or Documents()
        self.cache = Cache(limits.CACHE_BYTES, ttl)
        self._decoding = Slots(2, waiting=256)

    @classmethod
    def of(cls, settings: Settings, enclosed: Enclosed = "look") -> "Reader":
        """As the settings say."""
        fetcher = None
        if settings.allow_remote_images:
            from mellea_responses.media.remote import Fetcher  # the HTTP client is loaded by those who need it

            fetcher = Fetcher()
        return cls(settings.response_ttl, enclosed=enclosed, strict=settings.strict_replay, fetcher=fetcher)

    async def read(self, turn: Turn, given: Sequence[object], owner: str) -> dict[w.Part, str]:
        """What was read of the parts that do not reach a model as they are.

        Args:
            turn: With its history.
            given: The request's input as the client sent it, whose places errors name.
            owner: Whose turn it is.

        Raises:
            InvalidRequest: a part of the request cannot be read; `param` is its path.
            Busy: too much is read already.
        """
        parts = [part for item in turn.items for _, part in media(item)]
        if not parts:
            return {}
        paths = {id(part): f"input[{i}].{place}" for i, item in enumerate(given) for place, part in media(item)}
        new: dict[Media, str] = {}
        for part in parts:
            if id(part) in paths:
                new.setdefault(part, paths[id(part)])
        self._check(new)
        read = await self._new(new, owner)
        old = dict.fromkeys(part for part in parts if part not in new and (_is_file(part) or _is_remote(part)))
        return read | await self._old(old, owner) if old else read

    def _check(self, new: dict[Media, str]) -> None:
        """What can be refused before anything is read or fetched."""
        fetches = 0
        for part, path in new.items():
            if self._enclosed == "refuse" and isinstance(part, w.InputImage | w.InputAudio):
                what = "see images" if isinstance(part, w.InputImage) else "hear"
                raise InvalidRequest(f"This model cannot {what}; send text.", param=path)
            fetches += _is_remote(part)
            if fetches > limits.FETCH_PARTS:
                raise InvalidRequest(f"At most {limits.FETCH_PARTS} images are fetched for one request.", param=path)

    async def _new(self, parts: dict[Media, str], owner: str) -> dict[w.Part, str]:
        """What the client has just sent."""
        read: dict[w.Part, str] = {}
        costs = Costs()

        async def one(part: Media) -> None:
            try:
                found = await self._part(part, owner, costs)
            except InvalidRequest as error:
                error.param = parts[part]
                raise
            if found is not None:
                read[part] = found

        await _each(one, parts)
        return read

    async def _old(self, parts: Iterable[Media], owner: str) -> dict[w.Part, str]:
        """What stands in earlier turns: mostly kept, else read again. What is gone by now is left out."""
        read: dict[w.Part, str] = {}

        async def one(part: Media) -> None:
            try:
                found = await self._part(part, owner, Costs())
            except InvalidRequest:
                return
            if found is not None:
                read[part] = found

        try:
            async with asyncio.timeout(limits.AGAIN_SECONDS):
                await _each(one, parts)
        except TimeoutError:
            pass
        if gone := sum(part not in read for part in parts):
            logger.info("%d files or images of earlier turns can no longer be read", gone)
            if self._strict:
                raise InvalidRequest("A file or image of an earlier turn can no longer be read.", param="input")
        return read

    async def _part(self, part: Media, owner: str, costs: Costs) -> str | None:
        """What is to stand in a part's place; None where the part itself may."""
        if isinstance(part, w.InputFile):
            return await self._file(part, owner, costs)
        if not isinstance(part, w.InputImage) or not part.image_url:
            return None
        if is_data_url(part.image_url):
            if self._enclosed == "pass":
                return None
            pixels = await self._pixels(part.image_url, owner)
            costs.pixels -= pixels  # in one step: others are looked at meanwhile
            if costs.pixels < 0:
                raise InvalidRequest(
                    f"The images of one request may have {limits.REQUEST_PIXELS:,} pixels together.",
                    code="invalid_image",
                )
            return None
        return await self._fetched(part.image_url, owner, costs)

    async def _file(self, part: w.InputFile, owner: str, costs: Costs) -> str:
        key = await asyncio.to_thread(Cache.key, owner, "file", part.filename or "", part.file_data or "")
        kept = self.cache.get(key)
        if isinstance(kept, str):
            return kept
        text = await self._documents.read(part, owner, costs.files)
        self.cache.put(key, text)
        return text

    async def _pixels(self, url: str, owner: str) -> int:
        """How many there are, after a look at the whole picture."""
        key = await asyncio.to_thread(Cache.key, owner, "picture", url)
        kept = self.cache.get(key)
        if isinstance(kept, int):
            return kept
        async with self._decoding.one(owner):
            picture = await asyncio.to_thread(images.check, url)
        self.cache.put(key, picture.pixels)
        return picture.pixels

    async def _fetched(self, url: str, owner: str, costs: Costs) -> str:
        if self.fetcher is None:
            raise InvalidRequest("This server fetches no images.")
        key = Cache.key(owner, "address", url)
        kept = self.cache.get(key)
        if isinstance(kept, str):
            return kept
        data = await self.fetcher.fetch(url, owner)
        costs.fetched_bytes -= len(data)
        if costs.fetched_bytes < 0:
            raise InvalidRequest(
                f"At most {limits.FETCH_BYTES // limits.MIB} MiB of images are fetched for one request."
            )
        async with self._decoding.one(owner):
            picture = await asyncio.to_thread(images.look, data)
            found = await asyncio.to_thread(images.as_data_url, data, picture.kind)
        self.cache.put(key, found)
        return found


def _is_file(part: Media) -> bool:
    return isinstance(part, w.InputFile)


def _is_remote(part: Media) -> bool:
    return isinstance(part, w.InputImage) and part.image_url is not None and not is_data_url(part.image_url)


async def _each(do: Callable[[Media], Awaitable[None]], parts: Iterable[Media]) -> None:
    """Does it with every part, a few at a time; the first failure ends it all."""
    lane = asyncio.Semaphore(AT_ONCE)

    async def one(part: Media) -> None:
        async with lane:
            await do(part)

    try:
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(one(part))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
