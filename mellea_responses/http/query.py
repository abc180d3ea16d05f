"""Query parameters: read as text and judged here, so that the error is ours and names the parameter."""

from mellea_responses.errors import InvalidRequest


def flag(value: str | None, param: str) -> bool:
    """`true` or `false`; absent is false."""
    if value in (None, "", "false", "False", "0"):
        return False
    if value in ("true", "True", "1"):
        return True
    raise InvalidRequest(f"{param} must be true or false.", param=param)


def number(value: str | None, param: str, low: int, high: int | None, *, default: int) -> int:
    """A whole number within its range."""
    if value is None:
        return default
    if value.removeprefix("-").isdecimal() and value.isascii() and len(value) < 12:
        given = int(value)
        if given >= low and (high is None or given <= high):
            return given
    raise InvalidRequest(f"{param} must be a whole number from {low}{f' to {high}' if high else ''}.", param=param)


def one_of(value: str | None, param: str, allowed: tuple[str, ...]) -> str:
    """One of the allowed words; the first is the default."""
    if value is None:
        return allowed[0]
    if value not in allowed:
        raise InvalidRequest(f"{param} must be {' or '.join(allowed)}.", param=param)
    return value
