"""`leanbayes evaluate`: figures of a finished run on data by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

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
    from leanbayes.cli.figures import Judge
    from leanbayes.data.dataset import Data
    from leanbayes.prediction import Classification


def evaluate(  # noqa: PLR0913
    run: RunArgument,
    data: Annotated[
        str | None,
        typer.Option(help="Data by name; those of the run if left out.", autocompletion=data_names),
    ] = None,
    root: Annotated[str | None, typer.Option(help="Folder of the files of the data.")] = None,
    part: Annotated[str, typer.Option(help="train, validation, test, or a further part.")] = "test",
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Option of the data, images=100. May be repeated."),
    ] = None,
    ood: Annotated[
        str | None,
        typer.Option(help="Foreign data by name, or a further part of the data, to be detected."),
    ] = None,
    ood_root: Annotated[str | None, typer.Option(help="Folder of the files of --ood.")] = None,
    samples: SamplesFlag = None,
    seed: SeedFlag = 0,
    device: DeviceFlag = "auto",
    batch: Annotated[int, typer.Option(min=1, help="Rows of a forward pass.")] = 256,
    model: TrustFlag = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Segmentation: truth, prediction and uncertainty, .png, .pdf or .svg."),
    ] = None,
    images: Annotated[
        int, typer.Option(min=1, help="Images in the picture, evenly spaced over the part.")
    ] = 3,
    beside: Annotated[
        list[Path] | None, typer.Option(help="A further run in the picture. May be repeated.")
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            help="quick, standard, full, or splits: test,corrupted:fog,noise,rotated,ood:NAME,pgd."
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(min=1, help="With --suite: corrupt, shift and attack only so many rows."),
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="With --suite: figures by number of samples too.")
    ] = False,
    examples: Annotated[
        bool, typer.Option("--examples", help="With --suite: most and least certain images too.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="With --suite: JSON file for `report`, written after every split."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="With --suite: keep the splits that the file has.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Score a finished run: accuracy, NLL, ECE and Brier score, or RMSE and log density.

    With --ood: AUROC of foreign data against the data, by total and by epistemic uncertainty. With
    --picture: maps of labels and uncertainty of some images. With --suite: many splits, with
    curves, into a file.

    Example: leanbayes evaluate runs/one --suite standard --rows 50 --ood digits --out one.json
    """
    given = dict(locals())
    from leanbayes.cli.card import load_run
    from leanbayes.cli.evaluate_suite import check_flags, evaluate_suite
    from leanbayes.cli.figures import Judge
    from leanbayes.cli.readers import part_of, read_data
    from leanbayes.cli.run_data import options_of, read_for

    check_flags(given)
    card, net = load_run(run, model)
    _check_picture(card, picture, beside or [])
    name = str(card.data.get("reader")) if data is None else data
    found = read_for(card, name, options_of(card, name, root, change or []))
    _note_classes(card, found)
    if suite is not None:
        told = evaluate_suite(given, card, net, found)
        if told is not None:
            _print(told, as_json)
        return
    judge = Judge(card, net.to(device_of(device)), batch, {"samples": samples, "seed": seed})
    judges = {run: judge, **_others(judge, beside or [], model)}
    judged = judge.judged(part_of(found, part), found.normalize, found.ignore_index)
    figures = dict(judged.figures)
    if ood is not None:
        options = {} if ood_root is None else {"root": ood_root}
        others = found if ood in found.extra else read_data(ood, options, "--ood")
        foreign = others.extra[ood] if ood in found.extra else (others.test or others.train)
        strange = judge.uncertainty(foreign, others.normalize)
        figures |= judge.told_apart(judged.uncertainty, strange)
    told = {"data": name, "part": part, "count": judged.count, **figures}
    if picture is not None:
        _draw(judges, found, part, images, picture)
        told["picture"] = str(picture)
    _print(told, as_json)


def _note_classes(card: Card, found: Data) -> None:
    """Labels are numbers: a garment would count as the digit of its number."""
    names = [str(name) for name in found.classes]
    if names and card.classes and names != card.classes:
        of_data, of_run = (", ".join(each[:3]) for each in (names, card.classes))
        typer.echo(
            f"leanbayes: the classes of {found.name} ({of_data}, ...) are not those of the run "
            f"({of_run}, ...): labels are compared by their number. Foreign data are for --ood",
            err=True,
        )


def _check_picture(card: Card, picture: Path | None, beside: list[Path]) -> None:
    """Before the work: is there something to draw, and can it be written?"""
    from leanbayes.cli.segmentation_picture import check_picture
    from leanbayes.errors import ConfigError

    if picture is None and beside:
        raise ConfigError("--beside puts runs into one picture: write --picture FILE.png too")
    if picture is None:
        return
    task = card.data.get("task")
    if task != "segmentation":
        raise ConfigError(f"--picture draws labels by pixel; the run's task is {task}")
    check_picture(picture)


def _others(judge: Judge, runs: list[Path], allowed: str | None) -> dict[Path, Judge]:
    """The further runs, each asked as the first."""
    from dataclasses import replace

    from leanbayes.cli.card import load_run
    from leanbayes.errors import ConfigError

    found = {}
    device = next(judge.model.parameters()).device
    for run in runs:
        card, net = load_run(run, allowed)
        if card.classes != judge.card.classes or card.data.get("task") != "segmentation":
            raise ConfigError(f"--beside {run}: it has other classes than the first run")
        found[run] = replace(judge, card=card, model=net.to(device))
    return found


def _draw(judges: Mapping[Path, Judge], data: Data, part: str, images: int, path: Path) -> None:
    from leanbayes.cli.figures import rows_at, size_of
    from leanbayes.cli.readers import part_of
    from leanbayes.cli.segmentation_picture import draw_segmentation, spread

    whole = part_of(data, part)
    rows = spread(size_of(whole), images)
    chosen = rows_at(whole, rows)
    raw = chosen[0] if data.normalize is None else data.normalize.undo(chosen[0])
    labels = _labels(judges)
    found = {labels[run]: j.predicted(chosen, data.normalize)[0] for run, j in judges.items()}
    draw_segmentation(
        raw,
        chosen[1],
        cast("Mapping[str, Classification]", found),
        data.classes,
        path,
        ignore_index=data.ignore_index,
        names=[f"{part} {row}" for row in rows],
        title=f"{', '.join(labels.values())} on {data.name}",
    )


def _labels(judges: Mapping[Path, Judge]) -> dict[Path, str]:
    """Runs by their method, with the folder where a method comes twice."""
    names = {run: str(judge.model.method.to_json()["name"]) for run, judge in judges.items()}
    every = list(names.values())
    return {
        run: name if every.count(name) == 1 else f"{name} ({run.name})"
        for run, name in names.items()
    }


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
