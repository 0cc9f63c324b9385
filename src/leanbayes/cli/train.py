"""`leanbayes train` and `adapt`: a run from a settings file or flags, alone or under `launch`."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import wraps
from typing import TYPE_CHECKING, Any

import typer

from leanbayes.cli import flags
from leanbayes.cli.flags import Flags
from leanbayes.cli.readers import DATA
from leanbayes.cli.run import is_first, run

if TYPE_CHECKING:
    from leanbayes.train.adapt import Adapted

__all__ = ["DATA", "adapt", "run", "train"]


def train(  # noqa: PLR0913
    config: flags.ConfigFlag = None,
    data: flags.DataFlag = None,
    root: flags.RootFlag = None,
    model: flags.ModelFlag = None,
    weights: flags.WeightsFlag = None,
    method: flags.MethodFlag = None,
    recipe: flags.RecipeFlag = None,
    epochs: flags.EpochsFlag = None,
    change: flags.SetFlag = None,
    folder: flags.FolderFlag = None,
    seed: flags.SeedFlag = None,
    resume: flags.ResumeFlag = None,
    device: flags.DeviceFlag = None,
    precision: flags.PrecisionFlag = None,
    dry_run: flags.DryFlag = False,
    smoke: flags.SmokeFlag = False,
    as_json: flags.JsonFlag = False,
    help_method: flags.HelpMethodFlag = None,
) -> None:
    """Convert a network, train it on data by name, and save it.

    Settings come from the file, then flags, then every --set.

    Example: leanbayes train --config run.toml --set fit.epochs=2 --folder runs/one
    """
    _start(Flags.of(locals()))


@wraps(train, assigned=("__annotations__",))  # the same flags
def adapt(**given: Any) -> None:
    """Make a trained network Bayesian: `train` from given weights.

    The weights are a file (.th, .pt, .pth, .safetensors) or the folder of a finished run, which
    brings its network along.

    Example: leanbayes adapt --weights runs/one --data fashion_mini --method mean_field --epochs 1
    """
    _start(Flags.of(given), needs_weights=True)


def _start(given: Flags, *, needs_weights: bool = False) -> None:
    settings = given.settings()
    if needs_weights and settings.weights is None and not given.smoke:
        from leanbayes.errors import ConfigError

        raise ConfigError(
            "adapt starts from a trained network: write --weights FILE or --weights RUN; "
            "`leanbayes train` starts from scratch"
        )
    if given.dry_run:
        from leanbayes.cli.dry_run import dry_run

        text = dry_run(settings, as_json=given.as_json)
        if is_first():
            typer.echo(text)
        return
    if settings.fit.folder is None and not given.smoke and is_first():
        typer.echo("without --folder the run is not saved", err=True)
    _print(run(settings), given.as_json)


def _print(done: Adapted, as_json: bool) -> None:
    if not is_first():
        return
    figures = {"figures": dict(done.figures), "measured": dict(done.measured)}
    if as_json:
        method, result = done.model.method.to_json(), asdict(done.result)
        typer.echo(json.dumps({"method": method, "result": result, **figures}))
        return
    typer.echo(str(done.report))
    typer.echo("")
    epochs = done.result.epochs
    typer.echo(f"{done.result.steps} steps, {epochs:.4g} {'epoch' if epochs == 1 else 'epochs'}")
    for name, found in figures.items():
        if found:
            words = ", ".join(f"{key} {value:.4g}" for key, value in found.items())
            typer.echo(f"{'validation' if name == 'figures' else 'measured'}: {words}")
    if done.result.stopped:
        typer.echo(f"stopped early: {done.result.stopped}")
