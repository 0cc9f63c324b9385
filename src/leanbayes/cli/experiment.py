"""`leanbayes experiment`: an experiment of the papers, row by row into one file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanbayes.cli.experiment_kept import Kept, kept, labels_of
from leanbayes.cli.record_file import alone, check_place, save

if TYPE_CHECKING:  # it imports torch
    from leanbayes.experiments import Experiment


def experiment(  # noqa: PLR0913
    name: Annotated[
        str,
        typer.Argument(
            help="toy, uci, mnist-rates, fashion-widths, verification, adversarial-ood, ablations."
        ),
    ],
    root: Annotated[str | None, typer.Option(help="Folder of the files of the data.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change a setting: epochs=400, sets=['boston']. May be repeated."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, order and draws.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, auto, ...")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="File to write the rows to, JSON.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="PNG to draw the result to, for experiments that have a picture."),
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="A trial in seconds, to see that it runs.")
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=1, help="Parts that run side by side, a process each.")
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the rows that the file of --out has already.")
    ] = False,
) -> None:
    """Run an experiment of the papers; the file is written after every row.

    Example: leanbayes experiment toy --smoke --out toy.json
    """
    from leanbayes.cli.predict import device_of
    from leanbayes.cli.segmentation_picture import check_picture

    usable = device_of(device)  # said once, and not by every row
    device = usable.type if device == "auto" else device
    given = {"root": root, "seed": seed, "device": device, "smoke": smoke}
    chosen = _chosen(name, {k: v for k, v in given.items() if v is not None}, change or [])
    command = _command(name, {**given, "out": out, "picture": picture}, change or [])
    check_place(out, resume=resume)
    if picture is not None:
        check_picture(picture)
    with alone(out):
        rows = _run(chosen, command, out, jobs=jobs, resume=resume)
    if picture is not None:
        from leanbayes.experiments.picture import draw

        draw(rows, picture)


def _chosen(name: str, given: dict[str, Any], changes: list[str]) -> Experiment:
    """The experiment, its settings checked by their types."""
    from leanbayes.cli.file_values import Reader
    from leanbayes.cli.settings_file import merged
    from leanbayes.errors import ConfigError
    from leanbayes.experiments import EXPERIMENTS
    from leanbayes.train.fields import nearest

    if name not in EXPERIMENTS:
        raise ConfigError(f"no experiment is called {name!r}; {nearest(name, list(EXPERIMENTS))}")
    reader = Reader()
    found = reader.build(EXPERIMENTS[name], {**given, **merged({}, changes)}, name)
    if reader.problems:
        raise ConfigError("\n".join(reader.problems))
    built: Experiment = found
    return built


def _run(
    chosen: Experiment, command: str, out: Path | None, *, jobs: int, resume: bool
) -> list[dict[str, Any]]:
    """The rows in the order of the experiment, each saved as it comes; errors come last."""
    from leanbayes.cli.jobs import obeying_signals, run_all

    found = kept(out, chosen) if resume else Kept(chosen)
    rows, order = dict(found.rows), found.order
    missing = [label for label in labels_of(chosen) if label not in rows]
    if missing:
        _check_root(chosen.root)
    errors: dict[int, Exception] = {}
    work, said = Part(chosen, command), set[str]()
    with obeying_signals(), closing(run_all(work, missing, jobs)) as ends:
        for ended in ends:
            label = missing[ended.at]
            if ended.error is not None:
                errors[ended.at] = ended.error
                typer.echo(f"{label}: failed: {' '.join(str(ended.error).split())}", err=True)
                continue
            rows[label] = row = ended.value
            typer.echo(f"{label}: {_figures(row)} ({row['seconds']:.1f} s)")
            said = _said_once(found.other_start(row), said)
            save(out, text_of({**found.head, "rows": [rows[key] for key in order if key in rows]}))
    if errors:
        raise errors[min(errors)]
    return [rows[label] for label in order if label in rows]


def _said_once(words: str | None, said: set[str]) -> set[str]:
    if words is None or words in said:
        return said
    typer.echo(words, err=True)
    return said | {words}


def _check_root(root: str) -> None:
    """Said once, and not by every row; each reader says what it lacks in a root that is there."""
    from leanbayes.errors import DataError

    if not Path(root).expanduser().exists():
        raise DataError(f"--root {root} does not exist; expected where the files of the data lie")


@dataclass(frozen=True)
class Part:
    """Runs a part by its label, with where the row comes from."""

    chosen: Experiment
    command: str

    @cached_property
    def _parts(self) -> dict[str, Callable[[], dict[str, Any]]]:
        return dict(self.chosen.parts())

    def __call__(self, label: str) -> dict[str, Any]:
        """The row of this part."""
        import torch

        from leanbayes.experiments.experiment import timed
        from leanbayes.records import provenance

        # Before the work: the code that runs is that of this moment, whatever is committed then.
        origin = provenance(self.command, torch.device(self.chosen.device))
        return {**timed(label, self._parts[label]), **origin}


def _figures(row: dict[str, Any]) -> str:
    """The figures of a row in words: numbers, and means with their standard error."""
    words = []
    for key, value in row.items():
        if isinstance(value, dict) and "mean" in value and "error" in value:
            error = "" if value["error"] is None else f" +- {value['error']:.2g}"
            words.append(f"{key} {value['mean']:.4g}{error}")
        elif isinstance(value, float) and key != "seconds":
            words.append(f"{key} {value:.4g}")
    return ", ".join(words)


def text_of(record: dict[str, Any]) -> str:
    r"""JSON with a line a row: curves have hundreds of numbers.

    Example:
        >>> text_of({"experiment": "toy", "rows": [{"x": [1, 2]}, {"x": []}]})
        '{\n "experiment": "toy",\n "rows": [\n  {"x": [1, 2]},\n  {"x": []}\n ]\n}\n'
    """
    head = {key: value for key, value in record.items() if key != "rows"}
    lines = [f' "{key}": {json.dumps(value)},' for key, value in head.items()]
    rows = ",\n".join(f"  {json.dumps(row)}" for row in record["rows"])
    return "\n".join(["{", *lines, ' "rows": [', rows, " ]", "}"]) + "\n"


def _command(name: str, given: dict[str, Any], changes: list[str]) -> str:
    from leanbayes.records import shown

    words = ["leanbayes", "experiment", name]
    for key, value in given.items():
        if value is True:
            words.append(f"--{key}")
        elif value not in (None, False, 0, "cpu"):
            words += [f"--{key}", shown(value)]
    return shlex.join([*words, *(word for change in changes for word in ("--set", change))])
