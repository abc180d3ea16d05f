import pytest

from mellea_responses.engine.fair import FairQueue


def queue(*pairs: str) -> FairQueue[str]:
    made: FairQueue[str] = FairQueue()
    for pair in pairs:
        made.push(pair[0], pair)
    return made


def drained(queue: FairQueue[str]) -> list[str]:
    return [queue.pop() for _ in range(len(queue))]


def test_owners_take_turns_and_each_keeps_its_order() -> None:
    assert drained(queue("a1", "a2", "a3", "b1", "c1", "b2")) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_one_who_comes_later_waits_for_one_turn_of_each_other() -> None:
    waiting = queue("a1", "a2", "a3")
    waiting.pop()
    waiting.push("b", "b1")

    assert drained(waiting) == ["a2", "b1", "a3"]


def test_what_is_taken_out_does_not_come_again() -> None:
    waiting = queue("a1", "b1", "a2")

    assert waiting.take(lambda item: item.startswith("a")) == ["a1", "a2"]
    assert drained(waiting) == ["b1"]


def test_an_empty_queue_says_so() -> None:
    with pytest.raises(IndexError):
        queue().pop()
