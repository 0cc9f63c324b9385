"""The command line: `leanbayes train`, `predict` and the others; also `python -m leanbayes`.

The modules of commands import torch only when they run, so that `--help` answers at once. Output is
plain text, without colours.
"""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from leanbayes.cli.compare.command import compare
from leanbayes.cli.compare.join import join
from leanbayes.cli.demo.command import demo
from leanbayes.cli.evaluate import evaluate
from leanbayes.cli.experiment import experiment
from leanbayes.cli.info import info
from leanbayes.cli.landscape import landscape
from leanbayes.cli.launch import SETTINGS as LAUNCH
from leanbayes.cli.launch import launch
from leanbayes.cli.listings import data, models
from leanbayes.cli.methods import methods
from leanbayes.cli.predict import predict
from leanbayes.cli.recipes_command import recipes
from leanbayes.cli.report_command import report
from leanbayes.cli.serve import serve
from leanbayes.cli.train import adapt, train
from leanbayes.cli.trajectory import trajectory

__all__ = ["app", "main"]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)

app = typer.Typer(
    help="Calibrated, decomposed uncertainty for any PyTorch model.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
COMMANDS = (demo, train, adapt, predict, evaluate, compare, join, experiment, report, serve)
for command in (*COMMANDS, landscape, trajectory, info, methods, models, data, recipes):
    app.command()(command)
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
        _say(str(error))
        sys.exit(exit_code(error))
    except OSError as error:  # a full disk, a read-only folder, a file without permission
        if error.filename is None and error.errno not in FULL:
            raise
        _say(f"{error.filename or 'a file'}: {error.strerror}")
        sys.exit(5)
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"):
            raise
        _say(f"out of memory: {error}")
        sys.exit(4)


def _say(text: str) -> None:
    for line in text.splitlines():
        typer.echo(f"leanbayes: {' '.join(line.split())}", err=True)
