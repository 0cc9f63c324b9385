"""`leanbayes demo`: the library's main job on embedded real data, in about a minute."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leanbayes.cli.demo_report import record, text

if TYPE_CHECKING:  # they import torch
    from leanbayes.cli.comparison import Comparison
    from leanbayes.cli.setting import Data

PICTURED = "mean_field"


def demo(
    seed: Annotated[int, typer.Option(help="Seed of weights, batches and draws.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for certain.png and demo.json.")] = Path(
        "leanbayes-demo"
    ),
    smoke: Annotated[bool, typer.Option("--smoke", help="A few seconds, on few images.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print demo.json, no table.")] = False,
) -> None:
    """Make a trained network Bayesian with every method and compare."""
    start = time.perf_counter()
    _make_folder(out)
    from leanbayes.cli.comparison import compare
    from leanbayes.cli.setting import Data, Settings, smoke_settings

    settings = smoke_settings(seed) if smoke else Settings(seed=seed)
    data = Data.of(settings)
    found = compare(settings, data)
    picture = _draw(out, found, data)
    result = record(settings, found, picture, seconds=time.perf_counter() - start)
    as_text = json.dumps(result, indent=2)
    (out / "demo.json").write_text(as_text + "\n", encoding="utf-8")
    typer.echo(as_text if as_json else text(result, out))


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
        from leanbayes.cli.picture import draw_certain, ranked
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        typer.echo(
            "no picture, since matplotlib is missing: pip install 'leanbayes[report]'", err=True
        )
        return None
    rows = ranked(found.predictions[PICTURED], data.x_test, data.y_test, data.classes)
    draw_certain(out / "certain.png", *rows, method=PICTURED)
    return "certain.png"
