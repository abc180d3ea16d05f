"""Slots: never more at work than there are, owners in turn, and none lost however a wait ends."""

import asyncio

import pytest

from mellea_responses.errors import Busy
from mellea_responses.media import slots as module
from mellea_responses.media.slots import Slots


class Work:
    """Jobs that hold a slot until they are let go, in the order in which they got it."""

    def __init__(self, slots: Slots) -> None:
        self.slots, self.begun, self.gates = slots, list[str](), dict[str, asyncio.Event]()

    def start(self, name: str, owner: str = "ada") -> "asyncio.Task[None]":
        self.gates[name] = asyncio.Event()
        return asyncio.create_task(self._hold(name, owner))

    async def _hold(self, name: str, owner: str) -> None:
        async with self.slots.one(owner):
            self.begun.append(name)
            await self.gates[name].wait()

    async def end(self, name: str) -> None:
        self.gates[name].set()
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_owners_get_their_turns_in_turn() -> None:
    work = Work(Slots(1, waiting=9))
    tasks = [work.start(name, name[0]) for name in ("a1", "a2", "a3", "a4", "b1", "b2")]
    await settle()
    for _ in tasks:
        await work.end(work.begun[-1])
    await asyncio.gather(*tasks)

    assert work.begun == ["a1", "a2", "b1", "a3", "b2", "a4"]


async def test_an_owner_with_too_many_in_line_is_refused_and_another_is_not() -> None:
    work = Work(Slots(1, waiting=2))
    tasks = [work.start(name, name[0]) for name in ("a1", "a2", "a3", "a4", "b1")]
    await settle()
    with pytest.raises(Busy):
        await tasks.pop(3)
    for _ in tasks:
        await work.end(work.begun[-1])
    await asyncio.gather(*tasks)

    assert work.begun == ["a1", "a2", "b1", "a3"]


@pytest.mark.parametrize("moment", ["waiting", "at its turn"])
async def test_who_gives_up_takes_no_slot_along(moment: str) -> None:
    work = Work(Slots(1, waiting=9))
    first, second, third = (work.start(name) for name in ("1", "2", "3"))
    await settle()

    if moment == "waiting":
        second.cancel()
    else:
        work.gates["1"].set()
        await asyncio.sleep(0)
        second.cancel()
    await settle()
    await work.end("1")
    await work.end("3")
    await asyncio.gather(first, third)
    async with asyncio.timeout(5), work.slots.one("ada"):
        pass

    assert second.cancelled()
    assert work.begun == ["1", "3"]


async def test_a_wait_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.01)
    work = Work(Slots(1, waiting=9))
    first = work.start("1")
    await settle()

    with pytest.raises(Busy, match="at the moment"):
        await work.start("2")
    await work.end("1")
    await first
    async with asyncio.timeout(5), work.slots.one("ada"):
        pass


async def test_a_block_that_fails_gives_its_slot_back() -> None:
    slots = Slots(1, waiting=0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            async with slots.one("ada"):
                raise ZeroDivisionError
