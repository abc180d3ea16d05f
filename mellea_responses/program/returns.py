"""Whatever `serve()` gives → steps. The one place that knows every form."""

from collections.abc import Iterator
from typing import Any, get_args

import msgspec

from mellea_responses.turn import Step, Text

STEPS: tuple[type, ...] = get_args(Step)


class UnknownReturn(TypeError):
    """The program gave something that is no answer; the message names its type, for the log."""


def to_steps(value: Any) -> Iterator[Step]:
    """The steps of one returned or yielded value: text, a step, several of them, a pydantic model, plain JSON.

    Raises:
        UnknownReturn: it is none of these.
    """
    if isinstance(value, str):
        yield Text(value)
    elif isinstance(value, STEPS):
        yield value  # type: ignore[misc]  # one of Step's classes, which isinstance cannot say
    elif value is None:
        return
    elif isinstance(value, list | tuple) and value and all(isinstance(one, STEPS) for one in value):
        yield from value
    elif hasattr(value, "model_dump_json"):
        yield Text(value.model_dump_json())
    else:
        yield Text(_as_json(value))


def _as_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, OverflowError) as exc:
        raise UnknownReturn(f"serve() gave a {type(value).__name__}, which is no answer: {exc}") from None
