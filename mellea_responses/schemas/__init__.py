"""JSON Schemas from requests: judged before anything runs, in bounded time and memory, and never fetched.

Patterns run on a linear-time engine; where they need one that can go back, it is given little to read.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from mellea_responses.errors import InvalidRequest
from mellea_responses.schemas.cost import Cost, TooCostly
from mellea_responses.schemas.patterns import check_patterns

if TYPE_CHECKING:
    import jsonschema_rs

MAX_BYTES = 512 * 1024
_BACKTRACKS = 10_000


class Schema:
    """A compiled schema.

    Args:
        schema: The client's own, unchanged.
        path: Where it stands in the request, for error messages.

    Attributes:
        size: Bytes as JSON.

    Raises:
        InvalidRequest: it is no valid schema, has a reference to nowhere or outside, or could not be judged in time.
    """

    def __init__(self, schema: dict[str, Any], path: str) -> None:
        import jsonschema_rs  # three megabytes that a server without schemas never needs

        try:
            self.size = len(msgspec.json.encode(schema))
            if self.size > MAX_BYTES:
                raise InvalidRequest(f"The schema is larger than {MAX_BYTES} bytes.", param=path)
            has_patterns = check_patterns(schema, path)
            self._validator, backtracks = _compiled(schema, has_patterns)
            self._cost = Cost(schema, backtracks=backtracks)
        except jsonschema_rs.ValidationError as exc:
            raise InvalidRequest(
                f"Invalid JSON Schema: {exc.message[:200]}.", param=_join(path, exc.instance_path)
            ) from None
        except TooCostly as exc:
            raise InvalidRequest(f"This JSON Schema cannot be used: {exc}.", param=path) from None
        except (jsonschema_rs.ReferencingError, ValueError, RecursionError) as exc:
            reason = "nested too deeply" if "ecursion" in str(exc) or isinstance(exc, RecursionError) else str(exc)
            raise InvalidRequest(f"Invalid JSON Schema: {reason[:200]}.", param=path) from None

    def complaint(self, value: Any) -> str | None:
        """What is wrong with `value`, in a sentence that names the place; None when it fits."""
        import jsonschema_rs

        try:
            self._cost.check(value, len(msgspec.json.encode(value)))
            if self._validator.is_valid(value):
                return None
            if not self._cost.is_listed(value):
                return "it does not fit"
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            place = _join("", error.instance_path).lstrip(".")
            return f"{error.message[:200]}{f' at {place}' if place else ''}"
        except TooCostly as exc:
            return str(exc)
        except ValueError as exc:  # a pattern over its backtracking limit
            return str(exc)[:200]
        except RecursionError:
            return "the value is nested too deeply to be judged"
        return None


def _compiled(schema: dict[str, Any], has_patterns: bool) -> tuple["jsonschema_rs.Validator", bool]:
    """The validator, and whether its patterns can go back."""
    import jsonschema_rs

    sizes: dict[str, int] = {"size_limit": 2**20, "dfa_size_limit": 2**20}
    try:
        linear = jsonschema_rs.RegexOptions(**sizes)
        return jsonschema_rs.validator_for(schema, offline=True, pattern_options=linear), False
    except (jsonschema_rs.ValidationError, ValueError):
        if not has_patterns:
            raise
    backtracking = jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS, **sizes)
    return jsonschema_rs.validator_for(schema, offline=True, pattern_options=backtracking), True


def _join(path: str, parts: list[str | int]) -> str:
    return path + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
