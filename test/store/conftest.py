"""A clock that only tests move, and every store that keeps the promises of the port."""

from collections.abc import AsyncIterator, Callable

import pytest

from mellea_responses.store import MemoryStore, Store


class Clock:
    """Seconds that go on when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


MakeStore = Callable[[Clock], Store]
TENANTS: dict[str, MakeStore] = {
    "memory": lambda clock: MemoryStore(2**20, 1000, clock),
}


@pytest.fixture(params=TENANTS)
async def store(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Store]:
    """Each tenant in turn, with a budget of a mebibyte and a thousand records."""
    made = TENANTS[request.param](clock)
    await made.open()
    yield made
    await made.close()
