"""`leanbayes experiment`: an experiment of the papers, row by row into one file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:  # it imports torch
    from leanbayes.experiments import Experiment


def experiment(  # noqa: PLR0913
    name: Annotated[
        str, typer.Argument(help="toy, uci, mnist-rates, fashion-widths or verification.")
    ],
    root: Annotated[str | None, typer.Option(help="Where the files of the data lie.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting, epochs=400 or sets=['boston']. Repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of weights, order and draws.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="File of the rows, JSON.")] = None,
    picture: Annotated[Path | None, typer.Option(help="PNG, where there is a picture.")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Seconds, to see that it runs.")] = False,
) -> None:
    """Run an experiment of the papers; the file is written after every row.

    Example: leanbayes experiment toy --smoke --out toy.json
    """
    given = {"root": root, "seed": seed, "device": device, "smoke": smoke}
    chosen = _chosen(name, {k: v for k, v in given.items() if v is not None}, change or [])
    command = _command(name, {**given, "out": out, "picture": picture}, change or [])
    rows = _run(chosen, command, out)
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


def _run(chosen: Experiment, command: str, out: Path | None) -> list[dict[str, Any]]:
    from dataclasses import asdict

    import torch

    from leanbayes.records import provenance

    # The folder of the data is a matter of the machine.
    settings = {k: v for k, v in asdict(chosen).items() if k != "root"}
    head = {"experiment": chosen.name, "settings": settings}
    rows: list[dict[str, Any]] = []
    for row in chosen.rows():
        rows.append({**row, **provenance(command, torch.device(chosen.device))})
        typer.echo(f"{row['label']}: {_figures(row)} ({row['seconds']:.1f} s)")
        _write(out, {**head, "rows": rows})
    return rows


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


def _write(out: Path | None, record: dict[str, Any]) -> None:
    from leanbayes.train.folder import write_file

    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_file(out, text_of(record).encode())


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
