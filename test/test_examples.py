"""Each example's program, served as its docstring says, answers its client, which runs unmodified."""

import ast
import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

from support.reader import started

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PRINTS = {
    "hello": "You said: Hello!\n",
    "streaming": "3... \n2... \n1... \nlift-off!\ncompleted after 6 tokens\n",
    "tool_calling": 'add({"a": 17, "b": 25}) = 42\nThat makes 42.\n',
    "history": (
        "One -> Before this you said: nothing.\n"
        "Two -> Before this you said: One.\n"
        "Three -> Before this you said: One.\n"
        "Four -> Before this you said: One, Three.\n"
        "Asked with: ['Two']\n"
    ),
    "structured_output": "lunch with Ada and Grace\n",
    "check": "Refused: too_long At most 40 characters, got 52.\nShort and good.\n",
    "repair": "Good morning!\n",
    "server_tools": (
        'height({"mountain": "Dachstein"}) = 2995\n'
        'height({"mountain": "Triglav"}) = 2864\n'
        "Let me look that up. The highest is Dachstein.\n"
    ),
    "images": "What is this? blue, 48 by 32, as PNG.\n",
}


def command(file: Path) -> list[str]:
    """The command in the docstring of an example."""
    docstring = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    [written] = re.findall(r"^Serve it with `(.+)`\.$", docstring, re.MULTILINE)
    return str(written).split()


def run(client: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a client prints; in this process, since loading the SDK takes longer than all of them."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(client), run_name="__main__")["client"].close()
    return printed.getvalue()


@pytest.mark.parametrize("name", PRINTS)
def test_a_program_and_its_client_say_what_they_should(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(command(EXAMPLES / name / "program.py"), EXAMPLES.parent) as url:
        printed = run(EXAMPLES / name / "client.py", url, monkeypatch)

    assert printed == PRINTS[name]


def test_a_program_over_another_server_passes_calls_and_streams_through(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = EXAMPLES / "another_server"

    with started(command(EXAMPLES / "tool_calling" / "program.py"), EXAMPLES.parent) as other:
        monkeypatch.setenv("UPSTREAM_URL", f"{other}/v1")
        with started(command(folder / "program.py"), EXAMPLES.parent) as url:
            printed = run(folder / "client.py", url, monkeypatch)
            again = run(EXAMPLES / "tool_calling" / "client.py", url, monkeypatch)

    assert printed == 'add({"a": 17, "b": 25})\nThat makes 42.\n'
    assert again == PRINTS["tool_calling"]


@pytest.mark.model
@pytest.mark.timeout(600)
def test_a_model_without_a_program_answers_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    client = EXAMPLES / "model" / "client.py"

    with started(command(client), EXAMPLES.parent) as url:
        printed = run(client, url, monkeypatch)

    first, _, second = printed.partition("> What is my name?\n")
    assert first.startswith("> My name is Ada. Say hello.\n")
    assert len(first.splitlines()) > 1
    assert second.strip()


@pytest.mark.model
@pytest.mark.timeout(600)
def test_a_mellea_session_over_a_local_model_remembers_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = EXAMPLES / "mellea_agent"

    with started(command(folder / "program.py"), EXAMPLES.parent) as url:
        printed = run(folder / "client.py", url, monkeypatch)

    known = [int(number) for number in re.findall(r"^\((\d+) of \d+ tokens known\)$", printed, re.MULTILINE)]
    assert len(known) == 2
    assert known[1] > known[0]


def test_every_example_is_run_and_listed() -> None:
    folders = {path.parent.name for path in EXAMPLES.glob("*/client.py")}
    page = (EXAMPLES / "README.md").read_text("utf-8")

    assert folders == {*PRINTS, "another_server", "mellea_agent", "model"}
    assert [name for name in folders if f"| [{name}](" not in page] == []
