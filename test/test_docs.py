"""The pages of `docs/` are true: what they show is run, what is written from the code is what the code says."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from mellea.core import ModelOutputThunk
from typer.testing import CliRunner

from mellea_responses import errors
from mellea_responses.cli.main import app
from mellea_responses.http.app import create_app
from mellea_responses.program.load import load_program
from mellea_responses.settings import Settings
from mellea_responses.turn import Step
from support.reader import Reader
from support.serving import running

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
READ = ["start.md", "programs.md", "errors.md", "state.md", "streaming.md", "chat.md", "files.md"]
ELSEWHERE = ("make ", "source ", "python -m pip ", "cd ", "git clone ")  # test_readme.py and test_packaging.py do these


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings that `mellea-responses serve …` would serve with."""
    seen: list[Settings] = []
    monkeypatch.setitem(sys.modules, "mellea_responses.server", SimpleNamespace(run=seen.append))

    def parse(words: list[str]) -> Settings:
        result = CliRunner().invoke(app, ["serve", *words])
        assert result.exit_code == 0, result.output
        return seen.pop()

    return parse


# The SDK opens sockets in a way that its own library for them calls old.
@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")
@pytest.mark.parametrize("page", READ)
async def test_what_a_page_shows_is_what_happens(
    page: str, tmp_path: Path, settings_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # programs put their folder on it
    monkeypatch.setattr("mellea.start_session", lambda: SimpleNamespace(instruct=_instruct))

    @asynccontextmanager
    async def serve(words: list[str]) -> AsyncIterator[str]:
        settings = settings_of(words)
        program = load_program(str(tmp_path / (settings.program or "")), settings)
        async with running(create_app(program, settings)) as url:
            yield url

    await Reader(tmp_path, serve, ELSEWHERE).read(DOCS / page)


def _instruct(text: str, *, requirements: list[str] | None) -> ModelOutputThunk[str]:
    """A session whose model needs no server."""
    assert (text, requirements) == ("Begin a limerick.", [])
    return ModelOutputThunk("There once was a lady of Graz,")


@pytest.mark.parametrize("script", ["check.py", "options.py --check", "tables.py --check", "picture.py --check"])
def test_links_lead_somewhere_and_what_is_written_from_the_code_is_what_the_code_says(script: str) -> None:
    name, *arguments = script.split()

    done = subprocess.run(
        [sys.executable, str(DOCS / name), *arguments], capture_output=True, text=True, timeout=100, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "index.md").read_text("utf-8")

    assert [page.name for page in DOCS.glob("*.md") if page.name != "index.md" and f"({page.name})" not in index] == []


def test_every_error_class_and_every_step_is_on_its_page() -> None:
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.ApiError)]
    programs, page = (DOCS / "programs.md").read_text("utf-8"), (DOCS / "errors.md").read_text("utf-8")

    assert [one.__name__ for one in classes if f"| `{one.default_code}` | {one.status} |" not in page] == []
    assert [step.__name__ for step in get_args(Step) if f"| `{step.__name__}(" not in programs] == []
