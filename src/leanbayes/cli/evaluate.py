"""`leanbayes evaluate`: figures of a finished run on data by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanbayes.cli.completion import data_names
from leanbayes.cli.predict import (
    DeviceFlag,
    RunArgument,
    SamplesFlag,
    SeedFlag,
    TrustFlag,
    device_of,
)

if TYPE_CHECKING:
    from leanbayes.cli.card import Card


def evaluate(  # noqa: PLR0913
    run: RunArgument,
    data: Annotated[
        str | None,
        typer.Option(help="Data by name; those of the run if left out.", autocompletion=data_names),
    ] = None,
    root: Annotated[str | None, typer.Option(help="Where the files of the data lie.")] = None,
    part: Annotated[str, typer.Option(help="train, validation, test, or a further part.")] = "test",
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Option of the data: images=100.")
    ] = None,
    ood: Annotated[
        str | None,
        typer.Option(help="Foreign data, or a further part of the data: can they be told apart?"),
    ] = None,
    ood_root: Annotated[str | None, typer.Option(help="Where their files lie.")] = None,
    samples: SamplesFlag = None,
    seed: SeedFlag = 0,
    device: DeviceFlag = "auto",
    batch: Annotated[int, typer.Option(min=1, help="Rows of a pass.")] = 256,
    model: TrustFlag = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score a finished run: accuracy, NLL, ECE and Brier score, or RMSE and log density.

    With --ood: AUROC of foreign data against the data, by total and by epistemic uncertainty.

    Example: leanbayes evaluate runs/one --ood digits
    """
    from leanbayes.cli.card import load_run
    from leanbayes.cli.figures import Judge
    from leanbayes.cli.readers import part_of, read_data

    card, net = load_run(run, model)
    name = str(card.data.get("reader")) if data is None else data
    found = read_data(name, _options(card, name, root, change or []), "--set")
    judge = Judge(card, net.to(device_of(device)), batch, {"samples": samples, "seed": seed})
    judged = judge.judged(part_of(found, part), found.normalize, found.ignore_index)
    figures = dict(judged.figures)
    if ood is not None:
        options = {} if ood_root is None else {"root": ood_root}
        others = found if ood in found.extra else read_data(ood, options, "--ood")
        foreign = others.extra[ood] if ood in found.extra else (others.test or others.train)
        strange = judge.uncertainty(foreign, others.normalize)
        figures |= judge.told_apart(judged.uncertainty, strange)
    _print({"data": name, "part": part, "count": judged.count, **figures}, as_json)


def _options(card: Card, name: str, root: str | None, changes: list[str]) -> dict[str, Any]:
    """Those that the run read its data with, unless the data are others; then the changes."""
    from leanbayes.cli.settings_file import merged

    kept = card.data.get("options", {}) if card.data.get("reader") == name else {}
    found = merged({"options": dict(kept)}, [f"options.{change}" for change in changes])
    options: dict[str, Any] = found["options"]
    return options | ({} if root is None else {"root": root})


def _print(figures: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(figures))
        return
    wide = max(map(len, figures))
    for name, value in figures.items():
        text = (
            f"{value:.4f}"
            if isinstance(value, float)
            else f"{value:,}"
            if name == "count"
            else value
        )
        typer.echo(f"{name:<{wide}}  {text}")
