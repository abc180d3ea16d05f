"""A stranger does what the README says, word by word, and gets what it shows."""

import asyncio
import os
import subprocess
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.reader import Reader, blocks, commands, started

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
ELSEWHERE = ("source .venv/bin/activate", "python -m pip install .")  # what these do is in test_packaging.py


async def follow(page: str, folder: Path) -> None:
    """Does what a part of the README says, with servers in processes of their own."""

    @asynccontextmanager
    async def serve(words: list[str]) -> AsyncIterator[str]:
        server = started(["mellea-responses", "serve", *words], folder)
        url = await asyncio.to_thread(server.__enter__)
        try:
            yield url
        finally:
            await asyncio.to_thread(server.__exit__, None, None, None)

    (folder / "README.md").write_text(page, "utf-8")
    await Reader(folder, serve, ELSEWHERE).read(folder / "README.md")


def parts() -> tuple[str, str]:
    """The README up to its programs, and from there on."""
    model, heading, programs = README.read_text("utf-8").partition("## Serve a program")
    return model, heading + programs


async def test_programs_and_clients_of_the_readme_give_what_it_shows(tmp_path: Path) -> None:
    _, programs = parts()

    await follow(programs, tmp_path)


@pytest.mark.model
@pytest.mark.timeout(600)
async def test_the_embedded_model_answers_as_the_readme_shows(tmp_path: Path) -> None:
    model, _ = parts()

    await follow(model, tmp_path)


def test_make_serve_ends_in_the_command_without_a_program() -> None:
    outside = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}  # these run under make
    command = ["make", "--dry-run", "serve"]
    done = subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.splitlines()[-1].strip() == ".venv/bin/mellea-responses serve"


def test_every_install_that_a_page_names_is_one_the_package_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    shown = [block for page in (README, ROOT / "docs" / "start.md") for block in blocks(page) if block.language == "sh"]

    installs = {command for block in shown for command in commands(block) if "pip install" in command}

    assert installs == {"python -m pip install .", "python -m pip install '.[hf]'"}
    assert "hf" in project["optional-dependencies"]
    assert project["requires-python"] == ">=3.11"
    assert "Python 3.11 or newer" in README.read_text("utf-8")


def test_the_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) < 180
