"""Words that the assertions share."""

import logging
import re
from collections.abc import Iterator

from cases.play import Played

from support.raw import Answer
from support.stand_in import Json

PYTHON_WORDS = re.compile(
    r"Traceback|\.py\b|site-packages|mellea_responses|msgspec|litestar|pydantic|\bstr\b|\bdict\b|\bNoneType\b|"
    r"\bself\b|<class|object at 0x|\bStruct\b|Param\b|\w+Error\b"
)


def of_type(events: list[Json], *kinds: str) -> list[Json]:
    return [event for event in events if event["type"] in kinds]


def items_done(answer: Answer) -> list[Json]:
    return [event["item"] for event in of_type(answer.events, "response.output_item.done")]


def message_text(response: Json) -> str:
    """All words for the reader in an output."""
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part.get("text", "") for part in parts)


def calls(response: Json) -> list[Json]:
    return [item for item in response["output"] if item["type"] == "function_call"]


def messages(played: Played, call: int) -> list[Json]:
    """What the program received in its n-th call."""
    return played.program.received[call].messages


def roles(received: list[Json]) -> list[str]:
    return [message["role"] for message in received]


def errors(played: Played) -> list[Json]:
    return [answer.error for answer in played.answers if answer.status >= 400]


def warnings_of(log: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in log if record.levelno >= logging.WARNING]


def log_text(log: list[logging.LogRecord]) -> str:
    formatter = logging.Formatter("%(name)s %(levelname)s %(message)s")
    return "\n".join(formatter.format(record) for record in log)


def both_modes(played: Played) -> Iterator[tuple[Json, list[Json]]]:
    """The response of each answer with its stream's events, none where it was not streamed."""
    for answer in played.answers:
        yield answer.response, answer.events if answer.is_stream else []
