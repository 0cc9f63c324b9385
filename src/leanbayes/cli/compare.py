"""`leanbayes compare`: several methods on one data set under one budget, one table."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanbayes.cli.summary import moments
from leanbayes.cli.table import render

if TYPE_CHECKING:  # they import torch
    from leanbayes.cli.compare_runs import Ask, Outcome
    from leanbayes.cli.settings_file import RunSettings
    from leanbayes.errors import LeanBayesError

SMOKE_SEEDS = 2


def compare(  # noqa: PLR0913
    data: Annotated[
        str, typer.Argument(help="Data by name; uci-boston is the reader uci with name=boston.")
    ],
    methods: Annotated[
        str,
        typer.Option(
            help="Methods (leanbayes methods), commas between them; LABEL=METHOD, or LABEL with a "
            "table [methods.LABEL] in the file, compares settings of one method."
        ),
    ] = "map,mean_field",
    model: Annotated[
        str | None, typer.Option(help="Network; without one what is usual for the data's shape.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Trained weights that every method starts from.")
    ] = None,
    root: Annotated[str | None, typer.Option(help="Where the files of the data lie.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings that all methods share, a TOML file.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a value, fit.lr=0.1; of one method: methods.NAME.fields.KEY=..., "
            "methods.NAME.fit.KEY=... May be repeated.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every method.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    splits: Annotated[
        bool, typer.Option("--splits", help="Seed s takes split s of the data.")
    ] = False,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Draws a prediction; else the method's own number.")
    ] = None,
    part: Annotated[str, typer.Option(help="What is scored: test, validation, ...")] = "test",
    out: Annotated[Path | None, typer.Option(help="File of the record, JSON.")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Seconds, on a few rows.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record, no table.")] = False,
) -> None:
    """Train several methods on one data set under one budget; mean and standard error by seeds.

    Example: leanbayes compare fashion_mini --methods map,mean_field --out compare.json --smoke
    """
    given = dict(locals())
    from leanbayes.cli.compare_runs import Ask, labelled, settings_by_method

    tables = _tables(given)
    names = labelled(methods, tables)
    found = settings_by_method(tables, names, change or ())
    count = min(seeds, SMOKE_SEEDS) if smoke else seeds
    every = range(seed, seed + count)
    ask = Ask(seeds=every, part=part, samples=samples, splits=splits, smoke=smoke)
    _check_writable(out)
    rows, errors = _rows(found, ask, given)
    record = {
        "command": _command(given, methods),
        "data": data,
        "seeds": list(every),
        "rows": rows,
    }
    _write(out, record)
    typer.echo(json.dumps(record, default=str) if as_json else _table(rows))
    if errors:
        raise errors[0]


def _rows(
    found: Mapping[str, RunSettings], ask: Ask, given: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[LeanBayesError]]:
    """A row a method; one that fails has words in the place of figures, and the others go on."""
    from leanbayes.cli.compare_runs import failure, outcomes
    from leanbayes.errors import LeanBayesError

    rows: list[dict[str, Any]] = []
    errors: list[LeanBayesError] = []
    for name, settings in found.items():
        done: list[Outcome] = []
        row: dict[str, Any] = {"method": name}
        try:
            for outcome in outcomes(settings, ask):
                done.append(outcome)
                _tell(name, outcome)
        except LeanBayesError as error:
            errors.append(error)
            row["failed"] = failure(error)
            typer.echo(f"{name}: {row['failed']}", err=True)
        row |= _head(_command(given, _word(given, name)), done)
        rows.append({**row, **_summary(done)} if done else row)
        _write_part(given["out"], rows)
    return rows, errors


def _word(given: Mapping[str, Any], label: str) -> str:
    """What `--methods` says of this label."""
    words: list[str] = [word.strip() for word in given["methods"].split(",")]
    return next(word for word in words if word.partition("=")[0].strip() == label)


def _summary(done: Sequence[Outcome]) -> dict[str, Any]:
    """Figures over the seeds, and what each of them gave."""
    names = list(done[0].figures)
    runs = [{"seed": o.seed, "seconds": o.seconds, "figures": dict(o.figures)} for o in done]
    return {
        "config": done[0].config,
        "figures": {name: moments([o.figures.get(name) for o in done]) for name in names},
        "parameters": done[0].parameters,
        "parameters_added": done[0].parameters_added,
        "seconds": sum(o.seconds for o in done),
        "training_seconds": sum(o.training_seconds for o in done),
        "runs": runs,
    }


def _head(command: str, done: Sequence[Outcome]) -> dict[str, Any]:
    from leanbayes.records import provenance

    return provenance(command, done[0].device if done else None)


def _tables(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings file, with what the flags say in its place."""
    from leanbayes.cli.settings_file import read_tables

    tables = {} if given["config"] is None else read_tables(given["config"])
    tables.pop("method", None)
    name, options = _reader(given["data"])
    data = dict(tables.get("data", {}))
    data = data if data.get("name") == name else {"name": name}
    if given["root"] is not None:
        options["root"] = given["root"]
    tables["data"] = {**data, "options": {**data.get("options", {}), **options}}
    model = {} if given["model"] is None else {"name": given["model"]}
    if given["weights"] is not None:
        model["weights"] = str(given["weights"])
    tables["model"] = {**tables.get("model", {}), **model}
    return tables


def _reader(data: str) -> tuple[str, dict[str, Any]]:
    """Reader and options of a name; `uci-boston` is `uci` with name = "boston"."""
    from inspect import signature

    from leanbayes.cli.readers import DATA

    first, _, rest = data.partition("-")
    if data not in DATA and rest and first in DATA and "name" in signature(DATA[first]).parameters:
        return first, {"name": rest}
    return data, {}


def _command(given: Mapping[str, Any], methods: str) -> str:
    """The command that gives these figures again, of some methods."""
    from leanbayes.records import shown

    words = ["leanbayes", "compare", given["data"], "--methods", methods]
    labels = [word.partition("=")[0].strip() for word in methods.split(",")]
    for name in ("model", "weights", "root", "config", "samples"):
        if given[name] is not None:
            words += [f"--{name}", shown(given[name])]
    for change in given["change"] or ():
        if not change.startswith("methods.") or change.split(".")[1] in labels:
            words += ["--set", change]
    words += ["--seeds", str(given["seeds"]), "--seed", str(given["seed"]), "--part", given["part"]]
    words += [f"--{name}" for name in ("splits", "smoke") if given[name]]
    return shlex.join(words)


def _tell(name: str, outcome: Outcome) -> None:
    figures = ", ".join(f"{key} {value:.4g}" for key, value in outcome.figures.items())
    typer.echo(f"{name}, seed {outcome.seed}: {figures}, {outcome.seconds:.1f} s", err=True)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Methods down, figures across: mean and standard error."""
    every = dict.fromkeys(name for row in rows for name in row.get("figures", {}))
    figures = [name for name in every if not name.startswith("iou_")]  # in the record alone
    cells: Sequence[tuple[str, Callable[[Mapping[str, Any]], str]]] = (
        ("parameters", lambda row: f"{row['parameters']:,}"),
        ("added", lambda row: f"{row['parameters_added']:,}"),
        ("seconds", lambda row: f"{row['seconds']:.0f}"),
    )
    head = ["method", *figures, *(name for name, _ in cells)]
    lines = []
    for row in rows:
        shown = [_figure(row.get("figures", {}).get(name)) for name in figures]
        rest = [cell(row) if "figures" in row else "-" for _, cell in cells]
        lines.append([row["method"], *shown, *rest])
    failed = [f"{row['method']} failed: {row['failed']}" for row in rows if "failed" in row]
    return "\n".join([render(head, lines), *failed])


def _figure(found: Mapping[str, float | None] | None) -> str:
    if found is None or found["mean"] is None:
        return "-"
    error = found["standard_error"]
    return f"{found['mean']:.4f}" + ("" if error is None else f" +- {error:.4f}")


def _check_writable(out: Path | None) -> None:
    """Fail before the training, not after it."""
    if out is None:
        return
    from leanbayes.errors import ConfigError

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        with _beside(out).open("wb"):
            pass
    except OSError as error:
        raise ConfigError(
            f"--out must be a file that can be written, found {str(out)!r}: {error.strerror}"
        ) from error


def _write_part(out: Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
    """What is done so far, beside the file, for a comparison that is cut off."""
    if out is not None:
        _save(_beside(out), {"rows": rows})


def _write(out: Path | None, record: Mapping[str, Any]) -> None:
    if out is not None:
        _save(out, record)
        _beside(out).unlink(missing_ok=True)


def _save(path: Path, record: Mapping[str, Any]) -> None:
    from leanbayes.train.folder import write_file

    write_file(path, (json.dumps(record, indent=1, default=str) + "\n").encode())


def _beside(out: Path) -> Path:
    return out.with_name(f"{out.name}.part")
