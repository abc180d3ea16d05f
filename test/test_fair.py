import pytest

from mellea_responses.fair import FairQueue


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


def test_one_who_leaves_the_line_is_no_longer_counted() -> None:
    waiting = queue("a1", "a2", "b1")
    waiting.remove("a", "a1")
    waiting.remove("b", "b1")

    assert (waiting.waiting("a"), waiting.waiting("b"), len(waiting), bool(waiting)) == (1, 0, 1, True)
    assert drained(waiting) == ["a2"]
    assert not waiting


def test_what_is_not_in_line_cannot_leave_it() -> None:
    with pytest.raises(ValueError, match="not in"):
        queue("a1").remove("b", "a1")
