import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from mellea_responses.cli import values
from mellea_responses.cli.main import app
from mellea_responses.settings import MIB, Settings

DOCS = Path(__file__).resolve().parents[2] / "docs" / "options.md"


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `mellea-responses serve …` with the server replaced by a note of its settings."""
    seen: list[Settings] = []
    monkeypatch.setitem(sys.modules, "mellea_responses.server", SimpleNamespace(run=seen.append))

    def run(*arguments: str, env: dict[str, str] | None = None) -> Settings | str:
        result = CliRunner().invoke(app, ["serve", *arguments], env={"COLUMNS": "200", **(env or {})})
        return seen.pop() if result.exit_code == 0 else result.output

    return run


def parameters() -> Sequence[Any]:
    command: Any = typer.main.get_command(app)
    return [param for param in command.commands["serve"].params if param.name != "help"]


def test_every_setting_is_a_parameter_and_every_parameter_a_setting():
    assert {param.name for param in parameters()} == set(Settings.__struct_fields__)


def test_every_parameter_has_its_variable_and_a_sentence_of_help():
    assert [param.envvar for param in parameters()] == [f"MELLEA_RESPONSES_{p.name.upper()}" for p in parameters()]
    assert all(param.help.endswith(".") for param in parameters())


def test_every_option_is_in_the_docs():
    page = DOCS.read_text("utf-8")

    assert [p.opts[-1] for p in parameters() if p.param_type_name == "option" and f"`{p.opts[-1]}" not in page] == []


def test_without_a_word_the_settings_are_the_defaults(serve):
    assert serve() == Settings()


def test_options_become_settings(serve):
    arguments = "prog.py --response-ttl 0.5 --store-max-bytes 2MiB --model-name a --model-name b --reasoning hidden"

    assert serve(*arguments.split(), "--no-auth", "--max-output-tokens", "1") == Settings(
        program="prog.py",
        response_ttl=0.5,
        store_max_bytes=2 * MIB,
        model_names=("a", "b"),
        reasoning="hidden",
        no_auth=True,
        max_output_tokens=1,
    )


def test_a_variable_gives_a_setting_and_the_command_line_wins(serve):
    env = {
        "MELLEA_RESPONSES_PROGRAM": "pkg.mod:function",
        "MELLEA_RESPONSES_RESPONSE_TTL": "5",
        "MELLEA_RESPONSES_MODEL_NAMES": "a b",
        "MELLEA_RESPONSES_LOG_BODIES": "1",
        "MELLEA_RESPONSES_PORT": "9000",
    }

    assert serve("--port", "9001", env=env) == Settings(
        program="pkg.mod:function", response_ttl=5, model_names=("a", "b"), log_bodies=True, port=9001
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--response-ttl -1", "at least 0"),
        ("--response-ttl nan", "at least 0"),
        ("--step-timeout inf", "at least 0"),
        ("--store-max-bytes 0", "is not a size"),
        ("--store-max-bytes 5x", "is not a size"),
        ("--max-output-tokens 0", "1"),
        ("--port 65536", "65535"),
        ("--reasoning loud", "'auto', 'hidden'"),
        ("--unknown", "No such option"),
        ("prog.py --model some/model", "not both"),
    ],
)
def test_a_wrong_value_is_refused_with_what_would_have_worked(serve, arguments, complaint):
    answer = serve(*arguments.split())

    assert isinstance(answer, str)
    assert complaint in answer


@pytest.mark.parametrize("number", [1, 1023, 1024, 1536, MIB, 64 * MIB, 3 * 2**30, 10**9])
def test_a_size_is_shown_as_it_is_read(number):
    assert values.read_size(values.show_size(number)) == number


@pytest.mark.parametrize(("text", "number"), [("10", 10), ("1 kB", 1000), ("1KiB", 1024), ("2m", 2 * 10**6)])
def test_sizes_have_the_usual_units(text, number):
    assert values.read_size(text) == number
