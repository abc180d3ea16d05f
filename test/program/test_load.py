"""Finding and loading a program: what goes wrong is one clear line, and nothing real is overwritten."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mellea_responses.program.call import Signature, WrongSignature
from mellea_responses.program.load import LoadError, load_program
from mellea_responses.program.user import UserProgram
from mellea_responses.runs import new_current
from mellea_responses.settings import Settings
from mellea_responses.turn import Facts, Step, Text, Turn
from mellea_responses.wire.request import CreateResponse

GOOD = "def serve(input, requirements=None, model_options=None):\n    return 'ok'\n"


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules and paths of one test are not those of the next."""
    modules, monkeypatch_path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = monkeypatch_path
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and "pytest-" in str(sys.modules[name].__file__):
            del sys.modules[name]


def load(folder: Path, source: str, name: str = "my_program.py", **settings: Any) -> UserProgram:
    path = folder / name
    path.write_text(source)
    program = load_program(str(path), Settings(**settings))
    program.close()
    return program


def refuse(folder: Path, source: str, name: str = "my_program.py") -> str:
    with pytest.raises(LoadError) as caught:
        load(folder, source, name)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(str(folder / name))
    return line.removeprefix(f"{folder / name}: ")


async def said_by(path: Path) -> list[Step]:
    program = load_program(str(path), Settings())
    try:
        return [step async for batch in program.run(new_current("ada", "r", TURN)) for step in batch]
    finally:
        program.close()


TURN = Turn(CreateResponse(), ())


async def test_a_file_with_serve_is_a_program_under_its_own_name(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD).name == "my_program"
    assert await said_by(tmp_path / "my_program.py") == [Text("ok")]


def test_a_model_name_is_the_name_it_is_served_under(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD, model_names=("local", "other")).name == "local"


async def test_siblings_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "my_sibling.py").write_text("WORD = 'from beside'\n")
    (tmp_path / "program_with_sibling.py").write_text(
        "import my_sibling\ndef serve(turn):\n    return my_sibling.WORD\n"
    )

    assert await said_by(tmp_path / "program_with_sibling.py") == [Text("from beside")]


async def test_dataclasses_pydantic_models_and_pickles_find_the_module(tmp_path: Path) -> None:
    source = """
from __future__ import annotations
import pickle
from dataclasses import dataclass
from pydantic import BaseModel

@dataclass
class Point:
    x: int

class Answer(BaseModel):
    point: Point

def serve(turn):
    return Answer(point=pickle.loads(pickle.dumps(Point(1))))
"""
    (tmp_path / "program_with_types.py").write_text(source)

    assert await said_by(tmp_path / "program_with_types.py") == [Text('{"point":{"x":1}}')]


def test_a_main_block_does_not_run(tmp_path: Path) -> None:
    load(tmp_path, GOOD + "if __name__ == '__main__':\n    raise SystemExit('ran')\n")


@pytest.mark.parametrize("name", ["json.py", "colorsys.py", "typing.py"])
def test_a_file_named_like_a_real_module_never_takes_its_place(tmp_path: Path, name: str) -> None:
    real = name.removesuffix(".py")
    sys.modules.pop("colorsys", None)

    program = load(tmp_path, GOOD, name)

    assert program.name == real
    assert str(tmp_path) not in str(importlib.import_module(real).__file__)
    assert json.loads("1") == 1


def test_a_file_whose_name_is_no_identifier_is_loaded_all_the_same(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD, "my-program 2.py").name == "my-program 2"


def test_a_module_and_a_function_are_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text(GOOD.replace("serve", "answer"))
    monkeypatch.chdir(tmp_path)

    program = load_program("my_package.inner:answer", Settings())
    program.close()

    assert program.name == "inner"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere.py", "no such file"),
        ("/nowhere/at/all.py", "no such file"),
        ("nowhere", "neither a Python file nor"),
        ("no_such_package.module:serve", "No module named 'no_such_package'"),
        ("json:nothing", "no function `nothing`"),
        ("json:__name__", "no function `__name__`"),
        ("json:", "neither a Python file nor"),
        ("a b:c", "neither a Python file nor"),
        ("..:serve", "neither a Python file nor"),
        ("", "neither a Python file nor"),
    ],
)
def test_a_target_that_is_none_is_told_in_one_line(target: str, words: str) -> None:
    with pytest.raises(LoadError) as caught:
        load_program(target, Settings())

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def serve(:\n", "(line 1)"),
        ("x = 1\n\n  y = 2\n", "(line 3)"),
        ("", "no function `serve`"),
        ("serve = 5\n", "no function `serve`"),
        ("import no_such_module_at_all\n" + GOOD, "No module named 'no_such_module_at_all'"),
        ("raise ValueError('first line\\nsecond line')\n", "ValueError: first line"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("import sys\nsys.exit(3)\n", "exit 3"),
        ("\x00", "null bytes"),
        ("def serve():\n    return 1\n", "must take `input`"),
        ("def serve(prompt):\n    return 1\n", "needs `prompt`"),
        ("def serve(input, /):\n    return 1\n", "by keyword"),
        ("def serve(input, *, thing):\n    return 1\n", "needs `thing`"),
        ("def serve(*args):\n    return 1\n", "must take `input`"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_in_one_line(tmp_path: Path, source: str, words: str) -> None:
    assert words in refuse(tmp_path, source)


def test_the_line_where_loading_failed_is_named(tmp_path: Path) -> None:
    assert "line 3" in refuse(tmp_path, "x = 1\n\nx.nothing\n")


def test_a_program_that_failed_to_load_leaves_no_half_module_behind(tmp_path: Path) -> None:
    refuse(tmp_path, "raise ValueError('x')\n", "half_loaded.py")

    assert "half_loaded" not in sys.modules


async def test_a_check_of_its_own_is_found_and_one_that_it_only_imported_is_not(tmp_path: Path) -> None:
    (tmp_path / "my_checks.py").write_text("def check(turn):\n    raise ValueError\n")
    own = load(
        tmp_path, "from mellea_responses.turn import Facts\ndef check(turn):\n    return Facts(1)\n" + GOOD, "own.py"
    )
    imported = load(tmp_path, "from my_checks import check\n" + GOOD, "imported.py")

    assert own._check is not None
    assert own._check(TURN) == Facts(1)
    assert await imported.check(TURN, "ada") is None


# ---------------------------------------------------------------- how serve() is called


def called_with(serve: Any, turn: Turn = TURN) -> dict[str, Any]:
    """The arguments that `serve`, which returns its `locals()`, was called with."""
    arguments: dict[str, Any] = Signature(serve).call(turn)
    return arguments


def mellea_s_own(input: Any, requirements: Any = None, model_options: Any = None) -> Any:
    return locals()


def all_of_mellea_s(input: Any, requirements: Any, model_options: Any, format: Any, client_options: Any) -> Any:
    return locals()


def only_input(input: Any) -> Any:
    return locals()


def only_turn(turn: Any) -> Any:
    return locals()


def anything(**kwargs: Any) -> Any:
    return kwargs


def input_and_anything(input: Any, **kwargs: Any) -> Any:
    return {"input": input, **kwargs}


def own_with_a_default(input: Any, temperature: float = 0.5) -> Any:
    return locals()


@pytest.mark.parametrize(
    ("serve", "names"),
    [
        (mellea_s_own, {"input", "requirements", "model_options"}),
        (all_of_mellea_s, {"input", "requirements", "model_options", "format", "client_options"}),
        (only_input, {"input"}),
        (only_turn, {"turn"}),
        (anything, {"input", "requirements", "model_options"}),
        (input_and_anything, {"input", "requirements", "model_options"}),
        (own_with_a_default, {"input", "temperature"}),
    ],
)
def test_serve_gets_by_keyword_what_its_signature_names(serve: Any, names: set[str]) -> None:
    assert called_with(serve).keys() == names


@pytest.mark.parametrize("serve", [lambda: 1, lambda prompt: 1, lambda input, thing: 1, lambda *input: 1])
def test_a_serve_that_cannot_take_what_every_program_gets_is_refused(serve: Any) -> None:
    with pytest.raises(WrongSignature):
        Signature(serve)


def test_the_turn_is_the_turn() -> None:
    assert called_with(only_turn)["turn"] is TURN


@pytest.mark.parametrize(("takes", "loaded"), [("input", "True"), ("turn", "False")])
def test_what_a_first_call_needs_of_mellea_is_loaded_with_the_program(tmp_path: Path, takes: str, loaded: str) -> None:
    program = tmp_path / "own.py"
    program.write_text(f"def serve({takes}):\n    return 'yes'\n")
    load = (
        "import sys; from mellea_responses.program.load import load_program; from mellea_responses.settings import "
        f"Settings; load_program({str(program)!r}, Settings()); print('mellea.serve' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == loaded
