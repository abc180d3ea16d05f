"""JSON Schemas from requests: judged before anything runs, in bounded time and memory, and never fetched.

Patterns run on a linear-time engine; where they need one that can go back, it is given little to read.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from mellea_responses.errors import InvalidRequest
from mellea_responses.schemas.cost import Cost
from mellea_responses.schemas.dialects import modernise
from mellea_responses.schemas.patterns import check_patterns
from mellea_responses.schemas.places import Graph
from mellea_responses.schemas.references import NotJudgeable

if TYPE_CHECKING:
    import jsonschema_rs

MAX_BYTES = 512 * 1024
_BACKTRACKS = 10_000
_FEW_BACKTRACKS = 300
"""Where there is much to read: the pattern of an address goes back twenty times."""


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
            data = msgspec.json.encode(schema)
            self.size = len(data)
            if self.size > MAX_BYTES:
                raise InvalidRequest(f"The schema is larger than {MAX_BYTES} bytes.", param=path)
            schema = msgspec.json.decode(data)
            modernise(schema)
            has_patterns = check_patterns(schema, path)
            graph = Graph(schema, backtracks=0)  # before it is compiled, which can take for ever too
            linear = _linear(schema, has_patterns)
            self._backtracks = _BACKTRACKS if linear is None else 0
            self._schema, self._validator = schema, linear or _backtracking(schema, self._backtracks)
            self._cost = Cost(graph if linear else Graph(schema, backtracks=self._backtracks))
        except jsonschema_rs.ValidationError as exc:
            raise InvalidRequest(
                f"Invalid JSON Schema: {exc.message[:200]}.", param=_join(path, exc.instance_path)
            ) from None
        except NotJudgeable as exc:
            raise InvalidRequest(f"This JSON Schema cannot be used: {exc}.", param=path) from None
        except (jsonschema_rs.ReferencingError, ValueError, RecursionError) as exc:
            reason = "nested too deeply" if "ecursion" in str(exc) or isinstance(exc, RecursionError) else str(exc)
            raise InvalidRequest(f"Invalid JSON Schema: {reason[:200]}.", param=path) from None

    def _afford(self, value: Any, size: int) -> Any:
        """The value in the order in which it can be judged in time, where there is much to read with less going back.

        Raises:
            NotJudgeable: that would take too long.
        """
        try:
            return self._cost.check(value, size)
        except NotJudgeable:
            if self._backtracks <= _FEW_BACKTRACKS:
                raise
            self._backtracks = _FEW_BACKTRACKS
            self._cost = Cost(Graph(self._schema, backtracks=self._backtracks))
            value = self._cost.check(value, size)
            self._validator = _backtracking(self._schema, self._backtracks)
            return value

    def complaint(self, value: Any) -> str | None:
        """What is wrong with `value`, in a sentence that names the place; None when it fits."""
        import jsonschema_rs

        try:
            size = len(msgspec.json.encode(value))
            value = self._afford(value, size)
            if self._validator.is_valid(value):
                return None
            if not self._cost.is_listed(value, size):
                return "it does not fit"
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            place = _join("", error.instance_path).lstrip(".")
            return f"{error.message[:200]}{f' at {place}' if place else ''}"
        except NotJudgeable as exc:
            return str(exc)
        except ValueError as exc:  # a pattern over its backtracking limit
            return str(exc)[:200]
        except RecursionError:
            return "the value is nested too deeply to be judged"
        return None


_SIZES: dict[str, int] = {"size_limit": 2**22, "dfa_size_limit": 2**20}
_ALIKE: dict[str, Any] = {"offline": True, "validate_formats": False}
"""A `format` is a note in every draft, as it is in the newest."""


def _linear(schema: dict[str, Any], has_patterns: bool) -> "jsonschema_rs.Validator | None":
    """The validator whose patterns cannot go back, or None where that may be what one needs."""
    import jsonschema_rs

    try:
        options = jsonschema_rs.RegexOptions(**_SIZES)
        return jsonschema_rs.validator_for(schema, pattern_options=options, **_ALIKE)
    except (jsonschema_rs.ValidationError, ValueError):
        if not has_patterns:
            raise
    return None


def _backtracking(schema: dict[str, Any], times: int) -> "jsonschema_rs.Validator":
    """The validator whose patterns may go back so many times."""
    import jsonschema_rs

    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=times, **_SIZES)
    return jsonschema_rs.validator_for(schema, pattern_options=options, **_ALIKE)


def _join(path: str, parts: list[str | int]) -> str:
    return path + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
