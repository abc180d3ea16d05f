"""docs/clients.md shows what the drivers use; the settings of the command lines are read from the page itself."""

import re

import pytest

from support.driving import DRIVERS, ROOT

PAGE = (ROOT / "docs" / "clients.md").read_text("utf-8")
LINES = [
    (name, line)
    for name, block in re.findall(r"^```(?:python|js) (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if "127.0.0.1" in line
]


@pytest.mark.parametrize(("driver", "line"), LINES)
def test_a_line_with_an_address_is_the_drivers_own(driver: str, line: str) -> None:
    written = (DRIVERS / driver).read_text("utf-8")
    quoted = re.sub(
        r'"http://127\.0\.0\.1:8080([^"]*)"', r"`${url}\1`" if driver.endswith("mjs") else r'f"{url}\1"', line
    )

    assert quoted.strip() in written
