"""Programs: what answers a turn. A user's `serve()`, or the built-in one behind `--model`."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from mellea_responses.turn import CurrentRun, Facts, Step, Turn


class Program(Protocol):
    """The one face that runs know.

    One that cannot take any number of runs at the same time also has `capacity()`, how many it can take now, and
    `on_freed(tell)`, which has `tell` called on any thread when it can take more than it could.
    """

    @property
    def name(self) -> str:
        """The name it is served under."""

    async def check(self, turn: Turn, owner: str) -> Facts | None:
        """A last look before the headers go out.

        Raises:
            ApiError: the turn cannot be answered, and why.
        """

    def run(self, current: CurrentRun) -> AsyncIterator[Sequence[Step]]:
        """Answers the turn: steps as they are ready. Closing the iterator stops the work."""

    def close(self) -> None:
        """Lets go of threads, loops and models."""


class Silent:
    """Answers with nothing: for a request that only wants to be remembered (`generate: false`)."""

    name = "silent"

    async def check(self, turn: Turn, owner: str) -> Facts | None:
        """Nothing can be wrong."""
        return None

    async def run(self, current: CurrentRun) -> AsyncIterator[Sequence[Step]]:
        """Says nothing."""
        nothing: tuple[Sequence[Step], ...] = ()
        for batch in nothing:
            yield batch

    def close(self) -> None:
        """Nothing to let go."""
