"""What it costs to judge a value by a schema, counted before it is done: nothing can stop it then.

One unit is about fifty nanoseconds.
"""

from typing import Any

from mellea_responses.schemas.counter import Counter, measure
from mellea_responses.schemas.places import Graph
from mellea_responses.schemas.references import NotJudgeable

LIMIT = 5_000_000
"""Units that one judgement may cost: a quarter of a second."""
_LISTED = 10_000
"""Units up to which all that is wrong may be listed; that costs a hundred times what a plain no does."""
_COPIED = 4_000_000
"""Bytes that a list of all that is wrong may repeat."""
_UNKNOWN = LIMIT, LIMIT
_SMALL = 16 * 1024
"""Bytes of a value that is counted place by place at once."""


class Cost:
    """The cost of one schema.

    Args:
        graph: Its places.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._counter = Counter(graph)
        self._most: tuple[int, int] | None = None

    def check(self, value: Any, size: int) -> Any:
        """Sees to it that a value can be judged.

        Args:
            value: As decoded from JSON.
            size: Bytes of its JSON.

        Returns:
            The same value, the tags of its objects first where that is what makes it cheap.

        Raises:
            NotJudgeable: that would take too long.
        """
        if size > _SMALL and self._is_surely_cheap(value):
            return value
        try:
            self._counter.count(value, LIMIT)
        except NotJudgeable:
            if not self._graph.tags:
                raise
            value = _tags_first(value, self._graph.tags)
            Counter(self._graph, tagged=True).count(value, LIMIT)
        return value

    def is_listed(self, value: Any, size: int) -> bool:
        """Whether all that is wrong with a value may be listed: nothing is skipped then, and each place is repeated."""
        try:
            units = Counter(self._graph, whole=True).count(value, _LISTED)
        except NotJudgeable:
            return False
        return units * size <= _COPIED

    def _is_surely_cheap(self, value: Any) -> bool:
        if self._most is None:
            try:
                self._most = self._counter.most() or _UNKNOWN
            except NotJudgeable:
                self._most = _UNKNOWN
        each, reads = self._most
        places, letters = measure(value, LIMIT // each)
        return each * places + reads * letters <= LIMIT


def _tags_first(value: Any, tags: frozenset[str]) -> Any:
    """The same value, those properties of each object first that are tags."""
    if isinstance(value, list):
        return [_tags_first(one, tags) if isinstance(one, dict | list) else one for one in value]
    if not isinstance(value, dict):
        return value
    first = {name: one for name, one in value.items() if name in tags and isinstance(one, str)}
    return first | {
        name: _tags_first(one, tags) if isinstance(one, dict | list) else one
        for name, one in value.items()
        if name not in first
    }
