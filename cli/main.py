"""The command `mellea-responses`.

This folder has no `__init__.py` on purpose: it is `mellea_responses.cli` through a symlink, and a regular top-level
package `cli` would shadow Mellea's own. Only what `--help` needs is imported here; each command loads the rest itself.
"""

from typing import Annotated

import typer

from mellea_responses import __version__
from mellea_responses.cli.serve import EXAMPLES, serve

app = typer.Typer(
    name="mellea-responses",
    help="Put a Mellea program, or a bare Hugging Face model, behind the OpenAI Responses API.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    # A traceback with every local variable would print tokens and prompts.
    pretty_exceptions_show_locals=False,
)
app.command(epilog=EXAMPLES)(serve)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mellea-responses {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Options that come before the command."""


def main() -> None:
    """Run the command; the name in the help is the command's, also under `python -m`."""
    app(prog_name="mellea-responses")
