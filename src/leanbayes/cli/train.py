"""`leanbayes train`: a run from a settings file, alone or under `leanbayes launch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from leanbayes.cli.settings_file import RunSettings
    from leanbayes.train.adapt import Adapted

HELD_OUT = 1000


def train(
    config: Annotated[Path, typer.Option(help="Settings of the run, a TOML file.")],
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change a value: fit.lr=0.1. May be repeated.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where the run is kept; the same folder goes on with it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Convert a network of the zoo, train it on data by name, and save it.

    Example: leanbayes train --config run.toml --set fit.epochs=2 --folder runs/one
    """
    from leanbayes.cli.settings_file import read_settings

    settings = read_settings(config, change or (), data_names=DATA)
    if folder is not None:
        settings = replace(settings, fit=replace(settings.fit, folder=str(folder)))
    _print(run(settings), as_json)


def run(settings: RunSettings) -> Adapted:
    """What the file says, from the first to the last step; the model is saved beside the run."""
    import torch

    import leanbayes as lb

    data = DATA[settings.data.name](**settings.data.options)
    with torch.random.fork_rng():
        torch.manual_seed(settings.fit.seed)
        net = lb.models.create(settings.model.name, **settings.model.options)
        likelihood = settings.likelihood
        done = lb.adapt(net, settings.method, likelihood=likelihood, config=settings.fit, **data)
    if settings.fit.folder is not None and _is_first():
        lb.save(done.model, Path(settings.fit.folder) / "model")
    return done


def _is_first() -> bool:
    from leanbayes.train.processes import Processes

    return Processes.found().rank == 0


def _fashion(images: int | None = None, held_out: int = HELD_OUT) -> dict[str, Any]:
    """Embedded Fashion-MNIST; the last training images are held out for validation."""
    from leanbayes.data import fashion_mini

    full = fashion_mini()
    x, y = full.x_train, full.y_train
    first = slice(0, min(images or len(x), len(x) - held_out))
    data: dict[str, Any] = {"data": (x[first], y[first])}
    return data | ({"validation": (x[-held_out:], y[-held_out:])} if held_out else {})


DATA: Mapping[str, Callable[..., dict[str, Any]]] = {"fashion_mini": _fashion}


def _print(done: Adapted, as_json: bool) -> None:
    import json

    if not _is_first():
        return
    result = None if done.result is None else asdict(done.result)
    figures = {"method": done.model.method.to_json(), "result": result}
    if as_json:
        typer.echo(json.dumps({**figures, "measured": dict(done.measured)}))
        return
    typer.echo(str(done.report))
    if done.result is not None:
        last = done.result.history[-1] if done.result.history else {}
        words = ", ".join(f"{name} {value:.4g}" for name, value in last.items())
        typer.echo(f"{done.result.steps} steps, {done.result.epochs:.4g} epochs. {words}")
        if done.result.stopped:
            typer.echo(f"Stopped early: {done.result.stopped}.")
