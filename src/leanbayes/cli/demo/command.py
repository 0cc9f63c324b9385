"""`leanbayes demo`: the library's main job on embedded real data, in a few minutes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leanbayes.cli.demo.report import record, text, write_report
from leanbayes.cli.table import page_width

if TYPE_CHECKING:  # they import torch
    from leanbayes.cli.demo.comparison import Comparison
    from leanbayes.cli.demo.setting import Data, Settings

PICTURED = "mean_field"


def demo(
    seed: Annotated[int, typer.Option(help="Seed of weights, batches and draws.")] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="Repeat with so many seeds, from --seed on.")
    ] = 1,
    out: Annotated[
        Path, typer.Option(help="Folder for the report, demo.json and certain.png.")
    ] = Path("leanbayes-demo"),
    smoke: Annotated[
        bool, typer.Option("--smoke", help="A trial in seconds, on few images.")
    ] = False,
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out",
            help="Score held-out training images instead of the test set, to choose settings.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print demo.json, no table.")] = False,
) -> None:
    """Make a trained network Bayesian with every method and compare.

    Example: leanbayes demo --smoke --out demo
    """
    start = time.perf_counter()
    _make_folder(out)
    from leanbayes.cli.demo.setting import Data, Settings, smoke_settings

    settings = smoke_settings(seed) if smoke else Settings(seed=seed)
    data = Data.of(settings, held_out=held_out)
    runs = _compared(settings, data, seeds)
    result = record(
        settings,
        runs,
        command=_command(seed=seed, seeds=seeds, smoke=smoke, held_out=held_out),
        scored_on=f"{len(data.x_test):,} {'held-out training' if held_out else 'test'} images",
        picture=_draw(out, runs[0], data),
        seconds=time.perf_counter() - start,
    )
    as_text = json.dumps(result, indent=2)
    (out / "demo.json").write_text(as_text + "\n", encoding="utf-8")
    write_report(out)
    typer.echo(as_text if as_json else text(result, out, page_width()))


def _compared(settings: Settings, data: Data, seeds: int) -> Sequence[Comparison]:
    """A comparison a seed; one after another, since a second would share the cores."""
    from leanbayes.cli.demo.comparison import compare

    every = range(settings.seed, settings.seed + seeds)
    return [
        compare(
            replace(settings, seed=s),
            data,
            prefix=f"seed {s}, " if seeds > 1 else "",
            evaluate=s == settings.seed,
        )
        for s in every
    ]


def _command(**options: int | bool) -> str:
    """The command that gives these figures again."""
    words = ["leanbayes demo"]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is not False:
            words.append(flag if value is True else f"{flag} {value}")
    return " ".join(words)


def _make_folder(out: Path) -> None:
    """Fail before the training, not after it."""
    from leanbayes.errors import ConfigError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--out must be a folder that can be written, found {str(out)!r}: {error.strerror}"
        ) from error


def _draw(out: Path, found: Comparison, data: Data) -> str | None:
    """The name of the picture; None, and a line on stderr, where matplotlib is missing."""
    try:
        from leanbayes.cli.demo.picture import draw_certain, ranked
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        typer.echo("no picture, since matplotlib is missing: pip install matplotlib", err=True)
        return None
    rows = ranked(found.predictions[PICTURED], data.x_test, data.y_test, data.classes)
    draw_certain(out / "certain.png", *rows, method=PICTURED)
    return "certain.png"
