"""What the table of clients is made from."""

from collections.abc import Callable

import pytest

from support.driving import Tell


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """Says which client and feature a test is about, and what the client itself cannot do."""

    def said(client: str, feature: str, cannot: str | None = None) -> None:
        record_property("client", client)
        record_property("feature", feature)
        if cannot is not None:
            record_property("cannot", cannot)

    return said
