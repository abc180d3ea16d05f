"""Making a conversation shorter without breaking it: which messages may go, and in which order."""

from collections.abc import Callable, Sequence

from mellea_responses.engine.messages import Message


def shortest(count: int, fits: Callable[[int], bool]) -> int:
    """The least number of 0..count that fits, where every number above one that fits does too; else `count`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return low


def without_oldest(messages: Sequence[Message], drop: int) -> list[Message]:
    """Leave out the `drop` oldest pieces; a call goes together with its results.

    System messages, the last user message and the newest step after it always stay.
    """
    pieces = _pieces(messages)
    gone = {index for piece in pieces[:drop] for index in piece}
    return [message for index, message in enumerate(messages) if index not in gone]


def droppable(messages: Sequence[Message]) -> int:
    """How many pieces `without_oldest` can leave out."""
    return len(_pieces(messages))


def _pieces(messages: Sequence[Message]) -> list[list[int]]:
    """Whole earlier turns first, each with its user message; then the finished steps of the last turn."""
    spoken = [index for index, message in enumerate(messages) if message["role"] != "system"]
    users = [index for index in spoken if messages[index]["role"] == "user"]
    last = users[-1] if users else -1
    turns: list[list[int]] = []
    for index in spoken:
        if index < last and (messages[index]["role"] == "user" or not turns):
            turns.append([])
        if index < last:
            turns[-1].append(index)
    return turns + _steps(messages, [index for index in spoken if index > last])


def _steps(messages: Sequence[Message], indexes: Sequence[int]) -> list[list[int]]:
    steps: list[list[int]] = []
    for index in indexes:
        if messages[index]["role"] == "assistant" or not steps:
            steps.append([])
        steps[-1].append(index)
    return steps[:-1]  # the newest step is what the model must answer
