"""`leanbayes train`: a run from a settings file, alone or under `leanbayes launch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from torch import Tensor, nn

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
    _check_data(settings)
    if folder is not None:
        settings = replace(settings, fit=replace(settings.fit, folder=str(folder)))
    _print(run(settings), as_json)


def run(settings: RunSettings) -> Adapted:
    """What the file says, from the first to the last step; the model is saved beside the run."""
    import torch

    import leanbayes as lb

    data = DATA[settings.data.name](**settings.data.options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.fit.seed)
        net = _network(settings, data["data"][0])
        likelihood = settings.likelihood
        done = lb.adapt(net, settings.method, likelihood=likelihood, config=settings.fit, **data)
    if settings.fit.folder is not None and _is_first():
        lb.save(done.model, Path(settings.fit.folder) / "model")
    return done


def _network(settings: RunSettings, inputs: Tensor) -> nn.Module:
    """The network, tried on two rows: whatever it says against them is a wrong setting."""
    import torch

    import leanbayes as lb

    name, options = settings.model.name, settings.model.options
    try:
        net = lb.models.create(name, **options).eval()
        with torch.no_grad():
            net(inputs[:2])
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        shape = "x".join(map(str, inputs.shape[1:]))
        words = f"{name} with {dict(options)} does not run on inputs of {shape}: {error}"
        raise lb.ConfigError(f"model.options: {words}") from None
    return net.train()


def _check_data(settings: RunSettings) -> None:
    """Options of the data by the types of its function, as those of models are checked."""
    from leanbayes.cli.file_values import Reader
    from leanbayes.errors import ConfigError

    reader = Reader()
    reader.arguments(DATA[settings.data.name], settings.data.options, "data.options")
    if reader.problems:
        raise ConfigError("\n".join(reader.problems))


def _is_first() -> bool:
    from leanbayes.train.processes import Processes

    return Processes.found().rank == 0


def _fashion(images: int | None = None, held_out: int = HELD_OUT) -> dict[str, Any]:
    """Embedded Fashion-MNIST; the last training images are held out for validation."""
    from leanbayes.data import fashion_mini
    from leanbayes.errors import ConfigError

    full = fashion_mini()
    x, y = full.x_train, full.y_train
    if not 0 <= held_out < len(x) or (images is not None and not 1 <= images <= len(x) - held_out):
        raise ConfigError(
            f"data.options: of {len(x)} images held_out={held_out} are for validation and "
            f"images={images} for training: expected held_out from 0 on and at least one image, "
            "and no more of both than there are"
        )
    first = slice(0, len(x) - held_out if images is None else images)
    data: dict[str, Any] = {"data": (x[first], y[first])}
    return data | ({"validation": (x[-held_out:], y[-held_out:])} if held_out else {})


DATA: Mapping[str, Callable[..., dict[str, Any]]] = {"fashion_mini": _fashion}


def _print(done: Adapted, as_json: bool) -> None:
    import json

    if not _is_first():
        return
    figures = {"figures": dict(done.figures), "measured": dict(done.measured)}
    if as_json:
        method, result = done.model.method.to_json(), asdict(done.result)
        typer.echo(json.dumps({"method": method, "result": result, **figures}))
        return
    typer.echo(str(done.report))
    typer.echo("")
    typer.echo(f"{done.result.steps} steps, {done.result.epochs:.4g} epochs")
    for name, found in figures.items():
        if found:
            words = ", ".join(f"{key} {value:.4g}" for key, value in found.items())
            typer.echo(f"{'validation' if name == 'figures' else 'measured'}: {words}")
    if done.result.stopped:
        typer.echo(f"stopped early: {done.result.stopped}")
