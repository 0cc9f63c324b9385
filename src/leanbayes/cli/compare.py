"""`leanbayes compare`: several methods on one data set under one budget, one table."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanbayes.cli.record_file import check_place, save

if TYPE_CHECKING:  # they import torch
    from leanbayes.cli.compare_record import Record
    from leanbayes.cli.compare_runs import Bench, Outcome

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
    part: Annotated[
        str,
        typer.Option(help="What is scored: test, validation, ..., or several: validation,test."),
    ] = "test",
    out: Annotated[Path | None, typer.Option(help="File of the record, JSON.")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Seconds, on a few rows.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record, no table.")] = False,
    jobs: Annotated[
        int, typer.Option(min=1, help="Runs side by side on the same device, a process each.")
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the runs that the file of --out has already.")
    ] = False,
) -> None:
    """Train several methods on one data set under one budget; mean and standard error by seeds.

    Example: leanbayes compare fashion_mini --methods map,mean_field --out compare.json --smoke
    """
    given = dict(locals())
    from leanbayes.cli.compare_record import Record, table_of, text_of
    from leanbayes.cli.compare_runs import Ask, Bench
    from leanbayes.cli.compare_settings import labelled, parts_of, settings_by_method

    tables, parts = _tables(given), parts_of(part)
    names = labelled(methods, tables)
    ask = Ask(parts=parts, samples=samples, splits=splits, smoke=smoke)
    bench = Bench({}, ask)
    bench = replace(bench, settings=settings_by_method(tables, names, change or (), bench.sets))
    check_place(out, resume=resume)
    every = range(seed, seed + (min(seeds, SMOKE_SEEDS) if smoke else seeds))
    head = {"command": _command(given, methods), "data": data, "seeds": list(every)}
    head |= {"parts": list(parts)} if len(parts) > 1 else {}
    commands = {name: _command(given, _word(given, name)) for name in names}
    record = Record(head, commands, every, parts)
    if resume:
        record.keep(out, bench)
        _tell_kept(out, record)
    errors = _run(record, bench, out, jobs)
    save(out, text_of(record.plain()))
    as_text = json.dumps(record.plain(), default=str) if as_json else table_of(record.rows, parts)
    typer.echo(as_text)
    if errors:
        raise errors[0]


def _run(record: Record, bench: Bench, out: Path | None, jobs: int) -> list[Exception]:
    """All runs that are missing, each saved as it ends; one that fails leaves its words."""
    from leanbayes.cli.compare_record import text_of
    from leanbayes.cli.jobs import obeying_signals, run_all

    errors: dict[int, Exception] = {}
    missing = record.missing
    with obeying_signals(), closing(run_all(bench, missing, jobs)) as ends:
        for ended in ends:
            run = missing[ended.at]
            if ended.error is None:
                record.done[run] = ended.value
                _tell(run[0], ended.value)
            else:
                errors[ended.at] = ended.error
                record.failed[run] = " ".join(str(ended.error).split())
                typer.echo(f"{run[0]}, seed {run[1]}: {record.failed[run]}", err=True)
            save(out, text_of(record.plain()))
    return [errors[at] for at in sorted(errors)]


def _word(given: Mapping[str, Any], label: str) -> str:
    """What `--methods` says of this label."""
    words: list[str] = [word.strip() for word in given["methods"].split(",")]
    return next(word for word in words if word.partition("=")[0].strip() == label)


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
    several = len(outcome.figures) > 1
    words = [
        f"{part + ' ' if several else ''}{key} {value:.4g}"
        for part, figures in outcome.figures.items()
        for key, value in figures.items()
    ]
    line = f"{name}, seed {outcome.seed}: {', '.join(words)}, {outcome.seconds:.1f} s"
    typer.echo(line, err=True)


def _tell_kept(out: Path | None, record: Record) -> None:
    every = len(record.commands) * len(record.seeds)
    if out is not None and record.done:
        typer.echo(f"{len(record.done)} of {every} runs kept from {out.name}", err=True)
