"""Writes the tables of `docs/options.md` from the command itself; with `--check`, fails when they differ.

python docs/options.py [--check]
"""

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from mellea_responses.cli.main import app

PAGE = Path(__file__).with_name("options.md")
BEGIN = "<!-- From here on written by docs/options.py; the words are in cli/serve.py. -->"
END = "<!-- Written until here. -->"


def options() -> list[Any]:
    """The options of `serve` in the order of its help; PROGRAM is explained above the tables."""
    command: Any = typer.main.get_command(app)
    return [param for param in command.commands["serve"].params if param.param_type_name == "option"]


def tables() -> Iterator[str]:
    panels = list(dict.fromkeys(option.rich_help_panel for option in options()))
    in_order = sorted(options(), key=lambda option: panels.index(option.rich_help_panel))
    for panel, members in groupby(in_order, key=lambda option: option.rich_help_panel):
        yield f"\n## {panel}\n\n| Option | Default | What it does |\n| --- | --- | --- |\n"
        yield from map(row, members)
    yield "\n"


def row(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar}"
    name = "/".join([*option.opts, *option.secondary_opts]) + value.replace("|", "\\|")
    return f"| `{name}` | {default(option)} | {option.help} |\n"


def default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return option.show_default if " " in option.show_default else f"`{option.show_default}`"
    if option.is_flag:
        return "on" if option.default else "off"
    return f"`{option.default}`" if option.show_default else ""


def rendered(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{''.join(tables())}{END}{after}"


def main() -> None:
    page = PAGE.read_text("utf-8")
    wanted = rendered(page)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted, "utf-8")
    elif page != wanted:
        sys.exit("docs/options.md is not what the command says: run `python docs/options.py`")


if __name__ == "__main__":
    main()
