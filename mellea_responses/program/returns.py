"""Whatever `serve()` gives → steps. The one place that knows every form."""

from collections.abc import Iterator
from typing import Any, get_args

import msgspec

from mellea_responses.errors import well_formed
from mellea_responses.turn import Step, Text

STEPS: tuple[type, ...] = get_args(Step)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Step).decode


class UnknownReturn(TypeError):
    """The program gave something that is no answer; the message names its type, for the log."""


def to_steps(value: Any) -> Iterator[Step]:
    """The steps of one returned or yielded value.

    Text, a step, several of them, a finished output or message of Mellea's, a pydantic model, plain JSON.

    Raises:
        UnknownReturn: it is none of these.
    """
    if isinstance(value, str):
        yield Text(value)
    elif isinstance(value, STEPS):
        yield _sound(value)
    elif value is None:
        return
    elif is_mellea(value):
        yield from _mellea(value)
    elif isinstance(value, list | tuple) and any(isinstance(one, STEPS) for one in value):
        for one in value:
            yield from to_steps(one)
    elif hasattr(value, "model_dump_json"):
        yield Text(value.model_dump_json())
    else:
        yield Text(_as_json(value))


def _sound(step: Any) -> Any:
    """The step itself. Python lets a program put anything into one; what has a wrong type must not leave."""
    if type(step) is Text and type(step.text) is str and step.logprobs is None and step.phase is None:
        return step  # nearly all of them
    try:
        try:
            _decode(_encode(step))
        except UnicodeEncodeError:  # half a character, somewhere
            step = _mended(step)
            _decode(_encode(step))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise UnknownReturn(f"serve() gave a {type(step).__name__} with a wrong field: {exc}") from None
    return step


def _mended(value: Any) -> Any:
    """The same with every text in it well-formed."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list | tuple):
        return [_mended(one) for one in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(one) for key, one in value.items()}
    if isinstance(value, msgspec.Struct):
        fields = {name: _mended(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    return value


def is_mellea(value: Any) -> bool:
    """Whether it is one of Mellea's own values; asked without loading Mellea."""
    return any(cls.__module__.partition(".")[0] == "mellea" for cls in type(value).__mro__)


def _mellea(value: Any) -> Iterator[Step]:
    from mellea_responses.program.thunks import finished_steps

    steps = finished_steps(value)
    if steps is not None:
        return steps
    if hasattr(value, "model_dump_json"):
        return iter([Text(value.model_dump_json())])
    raise UnknownReturn(f"serve() gave a {type(value).__name__}, which is no answer")


def _as_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=_plain).decode()
    except (TypeError, ValueError, RecursionError, OverflowError) as exc:
        raise UnknownReturn(f"serve() gave a {type(value).__name__}, which is no answer: {exc}") from None


def _plain(value: Any) -> Any:
    """Pydantic models inside lists and objects, as generative functions return them.

    Raises:
        TypeError: it is none.
    """
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is no JSON")
