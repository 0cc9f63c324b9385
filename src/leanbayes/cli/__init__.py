"""The command line: `leanbayes demo`, `leanbayes methods`; also `python -m leanbayes`.

The modules of commands import torch only when they run, so that `--help` answers at once. Output is
plain text, without colours.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from leanbayes.cli.demo import demo
from leanbayes.cli.methods import methods

__all__ = ["app", "main"]

app = typer.Typer(
    help="Calibrated, decomposed uncertainty for any PyTorch model.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(methods)


def _print_version(wanted: bool) -> None:
    if wanted:
        from leanbayes import __version__

        typer.echo(f"leanbayes {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Hold the options that come before a command."""


def main() -> None:
    """Run a command; errors of leanbayes become one line on stderr and an exit code.

    2: a wrong setting or use; 5: a checkpoint that is damaged, foreign or does not fit.
    """
    from leanbayes.errors import CheckpointError, LeanBayesError

    try:
        app(prog_name="leanbayes")
    except LeanBayesError as error:
        typer.echo(f"leanbayes: {' '.join(str(error).split())}", err=True)
        sys.exit(5 if isinstance(error, CheckpointError) else 2)
