"""The command line: `leanbayes demo`, `methods`, `train`, `launch`; also `python -m leanbayes`.

The modules of commands import torch only when they run, so that `--help` answers at once. Output is
plain text, without colours.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from leanbayes.cli.demo import demo
from leanbayes.cli.launch import SETTINGS as LAUNCH
from leanbayes.cli.launch import launch
from leanbayes.cli.methods import methods
from leanbayes.cli.train import train

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
app.command()(train)
app.command(context_settings=dict(LAUNCH))(launch)


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

    2: a wrong setting or use; 3: a loss or gradient that is not finite; 4: out of memory; 5: a file
    or data that are damaged, foreign or do not fit; 130 and 143: ended by a signal, all saved.
    """
    from leanbayes.cli.worker import exit_code
    from leanbayes.errors import LeanBayesError

    try:
        app(prog_name="leanbayes")
    except LeanBayesError as error:
        for line in str(error).splitlines():
            typer.echo(f"leanbayes: {' '.join(line.split())}", err=True)
        sys.exit(exit_code(error))
