"""Two kinds of option values the command line has no type for: sizes and spans of time."""

import math
import re
from collections.abc import Callable

import typer

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_SIZE = re.compile(r"(\d+)\s*(?:([kmg]i?)?b?)", re.IGNORECASE)


def read_size(value: str | int) -> int:
    """A number of bytes: `1048576`, `1MiB`, `64mb`. Typer hands the default in as it is, hence the `int`."""
    match = _SIZE.fullmatch(str(value).strip())
    if match is None or int(match[1]) == 0:
        raise typer.BadParameter(
            f"{value!r} is not a size; give a positive number of bytes, or one with a unit, as in 64MiB"
        )
    return int(match[1]) * _UNITS[(match[2] or "").lower()]


def show_size(number: int) -> str:
    """The shortest spelling that `read_size` turns back into the same number."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number % factor == 0:
            return f"{number // factor}{unit}"
    return str(number)


def seconds(minimum: float) -> Callable[[str | float], float]:
    """A reader of finite spans of time; `nan` and `inf` would slip through a plain range check."""

    def read_seconds(value: str | float) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < minimum:
            raise typer.BadParameter(f"{value!r} is not a number of seconds of at least {minimum:g}")
        return number

    return read_seconds
