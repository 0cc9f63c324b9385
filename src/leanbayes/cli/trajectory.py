"""`leanbayes trajectory`: disagreement of a run's members over its last checkpoints."""

from __future__ import annotations

import json
import math
import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanbayes.cli.predict import (
    DeviceFlag,
    RunArgument,
    SamplesFlag,
    SeedFlag,
    TrustFlag,
    device_of,
)
from leanbayes.cli.run_data import (
    Asked,
    DataFlag,
    OutFlag,
    PartFlag,
    RootFlag,
    RowsFlag,
    SetFlag,
    typed,
)

if TYPE_CHECKING:
    from leanbayes.cli.card import Card
    from leanbayes.cli.run_data import Rows
    from leanbayes.model import BayesianModel

FEW = 10  # checkpoints that make a curve
COLUMNS = ("step", "accuracy", "nll", "disagreement", "normalised")


def trajectory(  # noqa: PLR0913
    run: RunArgument,
    out: OutFlag,
    data: DataFlag = None,
    root: RootFlag = None,
    part: PartFlag = "test",
    change: SetFlag = None,
    rows: RowsFlag = 10_000,
    last: Annotated[int, typer.Option(min=1, help="How many of the newest checkpoints.")] = FEW,
    samples: SamplesFlag = None,
    seed: SeedFlag = 0,
    device: DeviceFlag = "auto",
    model: TrustFlag = None,
) -> None:
    """Disagreement of the members against accuracy and NLL, a point a kept checkpoint.

    Accuracy and NLL are those of the averaged prediction; the disagreement is also divided by 1 -
    accuracy of a member. A run keeps its newest fit.keep checkpoints (2), one every fit.save_every
    steps (an epoch): train with --set fit.keep=10 to see more.

    Example: leanbayes trajectory runs/one --rows 200 --out trajectory.json
    """
    from leanbayes.cli.card import load_run
    from leanbayes.cli.record_file import check_place, save
    from leanbayes.records import provenance, shown

    check_place(out)
    asked = Asked(data, root, part, change, rows)
    card, net = load_run(run, model)
    _check(card, net)
    steps = _steps(run, last)
    net.to(device_of(device))
    batches = asked.read(card)
    points = _points(net, run, steps, batches, samples=samples, seed=seed)
    own = {"last": last, "samples": samples, "seed": seed, "model": model, "out": shown(out)}
    words = ["leanbayes", "trajectory", shown(run), *asked.words(), *typed(own)]
    record = {
        "kind": "trajectory",
        **provenance(shlex.join(words), next(net.parameters()).device),
        "method": net.method.name,
        "data": {"name": batches.name, "part": part},
        "points": points,
    }
    save(out, json.dumps(record, allow_nan=False) + "\n")
    _print(points, out)


def _check(card: Card, model: BayesianModel) -> None:
    from leanbayes.errors import ConfigError

    if card.data.get("task") == "regression":
        raise ConfigError(
            "members disagree about labels; the run's task is regression (`leanbayes evaluate "
            "--suite` has its epistemic part)"
        )
    if model.method.trains_as_point:
        raise ConfigError(
            f"{model.method.name} is fitted after training: its checkpoints are those of a point, "
            "whose draws are all the same"
        )


def _steps(run: Path, last: int) -> list[int]:
    """The newest checkpoints; a word on stderr where there are few."""
    from leanbayes.errors import CheckpointError
    from leanbayes.train.store import Store

    steps = Store(run).steps()
    advice = f"a run keeps its newest fit.keep checkpoints: train with --set fit.keep={last}"
    if not steps:
        raise CheckpointError(
            f"{run} holds no checkpoints (members trained alone have theirs in folders of their "
            f"own); {advice}"
        )
    if len(steps) < last:
        typer.echo(
            f"{run} holds {len(steps)} checkpoints of the {last} asked for; {advice}", err=True
        )
    return steps[-last:]


def _points(
    model: BayesianModel, run: Path, steps: Sequence[int], rows: Rows, **options: Any
) -> list[dict[str, Any]]:
    """A point a checkpoint that can be read; damaged ones are named and passed over."""
    import leanbayes as lb
    from leanbayes.cli.progress import stage

    points = []
    with stage("checkpoints", len(steps)) as tick:
        for step in steps:
            try:
                lb.restore(model, run, step)
            except lb.CheckpointError as error:
                typer.echo(f"leanbayes: checkpoint {step} is passed over: {error}", err=True)
                continue
            points.append({"step": step, **_figures(model, rows, **options)})
            tick()
    if not points:
        raise lb.CheckpointError(f"{run} holds no checkpoint that can be read")
    return points


def _figures(model: BayesianModel, rows: Rows, **options: Any) -> dict[str, float | None]:
    import leanbayes as lb

    with warnings.catch_warnings():
        # The curve itself shows where the members are one.
        warnings.simplefilter("ignore", lb.CollapsedMembers)
        found = lb.diversity(model, rows, **options)
    figures = {
        "accuracy": found.ensemble_accuracy,
        "nll": found.ensemble_nll,
        "disagreement": found.disagreement,
        "normalised": found.normalised,
        "member_accuracy": found.accuracy,
        "members": found.members,
    }
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def _print(points: Sequence[dict[str, Any]], out: Path) -> None:
    from leanbayes.cli.table import render

    cells = [[_cell(point[name]) for name in COLUMNS] for point in points]
    typer.echo(render(COLUMNS, cells))
    typer.echo(f"wrote {out}")


def _cell(value: float | None) -> str:
    if value is None:
        return "not finite"
    return str(value) if isinstance(value, int) else f"{value:.4f}"
