"""The notebooks run from top to bottom, print what they should, and are kept without outputs."""

import asyncio
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[1] / "examples" / "notebooks"
PRINTS = {
    "sdk_tour": """\
Question 1 was: How are you?
completed ['message']
Question |2 |was: |And |now? |
completed
Question 3 was: Left?
Question 3 was: Right?
get_weather {"city": "Graz"} -> It is sunny in Graz.
Trip(city='Graz', days=2)
Question 2 was: And now?
['And now?']
response_not_found
invalid_request temperature
""",
    "how_a_turn_continues": """\
['message'] Answer 2.
system: Be brief.
user: One.
Answer 2.
user: One.
assistant: Answer 2. [thought: they said One.]
user: Two.
Answer 2.
user: One.
assistant: Answer 2.
user: Two.
Answer 4.
user: One.
assistant: Answer 2. [thought: they said One.]
user: Two.
assistant: Answer 2. [thought: they said Two.]
user: How late is it?
assistant: clock
tool: noon
-- without previous_response_id
user: One.
assistant: Answer 2. [thought: they said One.]
user: Two.
assistant: Answer 2. [thought: they said Two.]
user: How late is it?
assistant: clock
tool: noon
-- tool_call_not_found
['Two.']
user: One.
assistant: Answer 2. [thought: they said One.]
user: Two.
assistant: Answer 2. [thought: they said Two.]
user: Three.
previous_response_not_found
""",
}


@pytest.fixture(autouse=True)
def _same_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


# Neither is ours: the kernel's own choice of transport, and Jupyter's of folders.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("name", PRINTS)
def test_a_notebook_runs_and_prints_what_it_should(name: str, tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)

    asyncio.run(NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(tmp_path)}}).async_execute())

    printed = "".join(
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type == "stream" and output.name == "stdout"
    )
    assert [line.rstrip() for line in printed.splitlines()] == PRINTS[name].splitlines()


def test_every_notebook_is_run_and_kept_without_outputs() -> None:
    files = {path.stem: nbformat.read(path, as_version=4) for path in NOTEBOOKS.glob("*.ipynb")}

    assert set(files) == set(PRINTS)
    for notebook in files.values():
        nbformat.validate(notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert not any(cell.outputs or cell.execution_count for cell in code)
