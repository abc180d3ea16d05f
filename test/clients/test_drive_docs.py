"""docs/clients.md shows what the drivers use; the settings of the command lines are read from the page itself."""

import re
from pathlib import Path

import pytest
from clients.drive.common import shown
from clients.drive.environments import ENVIRONMENTS
from clients.drive.sdks import CLIENTS

from support.driving import DRIVERS, FEATURES, ROOT, Client, run
from support.reader import blocks, started

PAGE = (ROOT / "docs" / "clients.md").read_text("utf-8")
LINES = [
    (name, line)
    for name, block in re.findall(r"^```(?:python|js) (use_\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
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


@pytest.mark.clients
@pytest.mark.quick
async def test_a_stranger_who_follows_the_page_for_the_agents_sdk_sees_what_it_shows(tmp_path: Path) -> None:
    environment = ENVIRONMENTS["openai-agents"]
    if not environment.installed:
        pytest.skip(environment.missing)
    [program] = [block.text for block in blocks(ROOT / "README.md") if block.title == "weather.py"]
    [expected] = [block.text for block in blocks(ROOT / "docs" / "clients.md") if block[:2] == ("text", "agent.py")]
    (tmp_path / "weather.py").write_text(program)
    with started(["mellea-responses", "serve", "weather.py"], tmp_path) as url:
        (tmp_path / "agent.py").write_text(shown("agent.py", url))
        outcome = await run([environment.interpreter, "agent.py"], cwd=tmp_path)

    assert outcome.output == expected, outcome.errors


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("| \n").split("|")]


ROWS = {cells(line)[0]: cells(line)[1:] for line in PAGE.splitlines() if line.startswith("| ")}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_the_table_says_of_a_client_what_its_tests_say(client: Client) -> None:
    reasons = [client.cannot.get(feature) for feature in FEATURES]

    assert ROWS["Client"][: len(FEATURES)] == list(FEATURES)
    assert ROWS[client.name][: len(FEATURES)] == [
        "yes" if reason is None else reason if reason == "-" else "no" for reason in reasons
    ]
    assert all(f": {reason}.\n" in PAGE for reason in reasons if reason not in (None, "-"))


README = (ROOT / "README.md").read_text("utf-8").partition("## Clients")[2].partition("\n## ")[0]
SHORT = [cells(line) for line in README.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("row", SHORT[2:], ids=lambda row: row[0])
def test_the_short_table_of_the_readme_is_true_by_the_long_one(row: list[str]) -> None:
    for name in row[0].split(", "):
        rows = [
            dict(zip(ROWS["Client"], long, strict=True)) for client, long in ROWS.items() if client.startswith(name)
        ]
        assert rows, name
        for feature, said in zip(SHORT[0][1:], row[1:], strict=True):
            there = {long[one] for long in rows for one in feature.split(" or ")}
            assert said not in ("yes", "no") or said in there, (name, feature)
            assert "?" not in there


def test_the_screen_on_the_page_is_of_a_real_run_and_tells_nothing_of_a_machine() -> None:
    screen = PAGE.partition("<!-- codex -->")[2].partition("<!-- end -->")[0]

    assert "exec\n/bin/bash -lc 'mkdir made' in ~/project\n succeeded" in screen
    assert not re.search(r"/(tmp|home|root|Users|work)\b", screen)
