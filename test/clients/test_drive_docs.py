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


def test_the_screen_on_the_page_is_of_a_real_run_and_tells_nothing_of_a_machine() -> None:
    screen = PAGE.partition("<!-- codex -->")[2].partition("<!-- end -->")[0]

    assert "exec\n/bin/bash -lc 'mkdir made' in ~/project\n succeeded" in screen
    assert not re.search(r"/(tmp|home|root|Users|work)\b", screen)
