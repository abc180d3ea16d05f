"""Places are given in turn between owners, never twice, and never to nobody."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from mellea_responses.admission import Admission, Place
from mellea_responses.errors import Busy


async def admitted(*places: Place) -> list[str]:
    """The owners whose turn has come, once the loop has looked."""
    await asyncio.sleep(0)
    return [place.owner for place in places if not place.waiting]


async def test_with_a_slot_free_nobody_waits() -> None:
    admission = Admission(2, 0)

    places = [admission.enter("ada"), admission.enter("ada")]

    assert not any(place.waiting for place in places)
    with pytest.raises(Busy):
        admission.enter("ada")


async def test_owners_take_turns_however_many_requests_one_of_them_has() -> None:
    admission = Admission(1, 10)
    first = admission.enter("ada")
    waiting = [admission.enter(owner) for owner in ("ada", "ada", "ada", "bob", "cy")]
    order = []

    place = first
    while admission.waiting:
        place.leave()
        place = next(one for one in waiting if not one.waiting)
        waiting.remove(place)
        order.append(place.owner)

    assert order == ["ada", "bob", "cy", "ada", "ada"]


async def test_a_full_line_of_one_owner_leaves_the_others_theirs() -> None:
    admission = Admission(1, 1)
    admission.enter("ada")
    admission.enter("ada")

    with pytest.raises(Busy):
        admission.enter("ada")
    assert admission.enter("bob").waiting


async def test_a_turn_is_waited_for_and_comes_when_a_slot_is_free() -> None:
    admission = Admission(1, 1)
    first, second = admission.enter("ada"), admission.enter("bob")
    turn = asyncio.create_task(second.turn())
    assert not await admitted(second)

    first.leave()

    await turn
    assert (admission.active, admission.waiting) == (1, 0)


async def test_who_leaves_the_line_gives_its_place_to_nobody_and_who_leaves_twice_frees_one_slot() -> None:
    admission = Admission(1, 2)
    first, second, third = (admission.enter("ada") for _ in range(3))
    second.leave()
    second.leave()
    assert (admission.active, admission.waiting) == (1, 1)

    first.leave()
    first.leave()

    assert await admitted(third) == ["ada"]
    assert (admission.active, admission.waiting) == (1, 0)


async def test_a_turn_that_came_before_its_request_left_is_given_on() -> None:
    admission = Admission(1, 2)
    first, second, third = (admission.enter("ada") for _ in range(3))
    turn = asyncio.create_task(second.turn())
    await asyncio.sleep(0)

    first.leave()
    turn.cancel()
    second.leave()

    assert await admitted(third) == ["ada"]
    assert admission.active == 1


@pytest.mark.parametrize("capacity", [lambda: None, lambda: 5], ids=["any number", "more than may run"])
async def test_a_program_that_takes_more_than_may_run_changes_nothing(capacity: Callable[[], int | None]) -> None:
    admission = Admission(1, 1, capacity)

    assert [admission.enter("ada").waiting for _ in range(2)] == [False, True]


async def test_with_every_slot_lost_nobody_is_let_into_the_line() -> None:
    admission = Admission(4, 4, lambda: 0)

    with pytest.raises(Busy):
        admission.enter("ada")


async def test_a_slot_that_is_found_again_goes_to_who_waits() -> None:
    room = 1
    admission = Admission(4, 4, lambda: room)
    first, second = admission.enter("ada"), admission.enter("ada")
    room = 0
    first.leave()
    assert not await admitted(second)

    room = 1
    thread = threading.Thread(target=admission.freed)
    thread.start()
    thread.join()

    await second.turn()
    assert admission.active == 1
