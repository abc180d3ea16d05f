"""What holds for every test over a socket."""

from collections.abc import AsyncIterator

import pytest

from support import sdk


@pytest.fixture(autouse=True)
async def _close_clients() -> AsyncIterator[None]:
    """An SDK client left open is a warning, and warnings are errors."""
    yield
    for client in sdk.opened:
        await client.close()
    sdk.opened.clear()
