"""`leanbayes compare`: several methods on one data set under one budget, one table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanbayes.cli.compare.record import Record, text_of
from leanbayes.cli.compare.table import is_shown, table_of
from leanbayes.cli.compare.words import command_of, own_changes, tables_of, word_of
from leanbayes.cli.record_file import alone, check_place, save

if TYPE_CHECKING:  # they import torch
    from leanbayes.cli.compare.ask import Ask, Run
    from leanbayes.cli.compare.data import Sets
    from leanbayes.cli.compare.kept import Kept
    from leanbayes.cli.compare.runs import Bench, Outcome
    from leanbayes.cli.compare.settings import Lineup
    from leanbayes.cli.compare.suite import SuiteAsk
    from leanbayes.cli.compare.tasks import Task

SMOKE_SEEDS = 2
DEFAULT = "map,mean_field"


def compare(  # noqa: PLR0913
    data: Annotated[
        str, typer.Argument(help="Data by name; uci-boston is the reader uci with name=boston.")
    ],
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods (leanbayes methods), commas between them; LABEL=METHOD, or LABEL with a "
            "table [methods.LABEL] in the file, compares settings of one method. Without it "
            "map,mean_field, or all rows of --table."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Network (leanbayes models); by default the usual one for the data's shape."
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Trained weights that every method starts from.")
    ] = None,
    root: Annotated[str | None, typer.Option(help="Folder of the files of the data.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings that all methods share, a TOML file.")
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(help="A whole comparison by name (cifar10-wrn) in place of the file."),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a value, fit.lr=0.1; of one method: methods.NAME.fields.KEY=..., "
            "methods.NAME.fit.KEY=... May be repeated.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds, that is runs of every method.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    splits: Annotated[
        bool, typer.Option("--splits", help="Seed s takes split s of the data.")
    ] = False,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="Draws of a prediction; by default the method's own number."),
    ] = None,
    part: Annotated[
        str,
        typer.Option(help="What is scored: test, validation, ..., or several: validation,test."),
    ] = "test",
    start: Annotated[
        bool,
        typer.Option(
            "--start",
            help="Train the point estimate once a seed, and let all methods begin there; a table "
            "[start] in the file does so too.",
        ),
    ] = False,
    price: Annotated[
        bool, typer.Option("--price/--no-price", help="Measure what every method costs.")
    ] = True,
    suite: Annotated[
        str | None,
        typer.Option(
            help="Evaluate every run on quick, standard, full, or splits: test,corrupted:fog,noise,"
            "rotated,ood:NAME,pgd; a table [suite] in the file does so too."
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
    out: Annotated[Path | None, typer.Option(help="File to write the record to, JSON.")] = None,
    keep: Annotated[
        Path | None,
        typer.Option(help="Folder of starts and scores by row; of starts else one beside --out."),
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="A trial in seconds, on a few rows.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record, no table.")] = False,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            help="Runs side by side on the same device, a process each; prices come after them.",
        ),
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the runs that the file of --out has already.")
    ] = False,
    stop_after: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Begin no run after so many seconds; current ones end, and prices are measured.",
        ),
    ] = None,
) -> None:
    """Train several methods on one data set under one budget; mean and standard error by seeds.

    Example: leanbayes compare fashion_mini --methods map,mean_field --out compare.json --smoke
    """
    given, more = dict(locals()), _until(stop_after)
    from leanbayes.cli.compare.ask import Ask
    from leanbayes.cli.compare.data import Sets
    from leanbayes.cli.compare.kept import Kept, folder_of
    from leanbayes.cli.compare.settings import labelled, lineup_of, parts_of
    from leanbayes.cli.compare.suite import suite_asked

    tables, parts, sets = tables_of(given), parts_of(part), Sets()
    rows_of_table = list(tables.get("methods", {})) if table is not None else []
    given["methods"] = methods or ",".join(rows_of_table) or DEFAULT
    splits_asked = suite_asked(tables.pop("suite", None), given)
    _check_parts(parts, splits_asked)
    names = labelled(given["methods"], tables)
    lineup = lineup_of(tables, names, own_changes(change), sets, start=start)
    if suite is not None:  # a flag goes before the file
        lineup = replace(lineup, splits={})
    check_place(out, resume=resume)
    if splits_asked is not None:
        splits_asked.foreign(sets)  # what cannot be read is said before the training
    every = range(seed, seed + (min(seeds, SMOKE_SEEDS) if smoke else seeds))
    ask = Ask(
        parts=parts,
        samples=samples,
        splits=splits,
        smoke=smoke,
        first=seed,
        price=price,
        jobs=jobs,
        by_row=len(every) == 1,
        suite=splits_asked,
    )
    with alone(out), folder_of(keep, out, needed=lineup.has_starts) as folder:
        bench = _bench(lineup, ask, folder, sets, every)
        bench.check_suites()
        kept = Kept(keep)
        record = _record(given, bench, every, kept)
        record.table = rows_of_table
        record.at_hand = bench.at_hand([(label, s) for label in names for s in every])
        if resume:
            record.keep(out, bench)
            _tell_kept(out, record)
        with _telling_left(out, record):
            errors = _run(record, bench, kept, out, more)
        save(out, text_of(record.plain()))
    if as_json:
        typer.echo(json.dumps(record.plain(), default=str))
    else:
        typer.echo(table_of(record.rows, parts, bold=sys.stdout.isatty()))
    if errors:
        raise errors[0]


def _until(seconds: float | None) -> Callable[[], bool]:
    """Says whether there is time for another run."""
    began = monotonic()
    return lambda: seconds is None or monotonic() - began < seconds


def _check_parts(parts: Sequence[str], suite: SuiteAsk | None) -> None:
    from leanbayes.errors import ConfigError

    if suite is not None and len(parts) > 1:
        raise ConfigError(f"--suite is made of one part: write --part {parts[0]}")


def _bench(
    lineup: Lineup, ask: Ask, folder: Path | None, sets: Sets, seeds: Sequence[int]
) -> Bench:
    """What runs; with starts where a method begins at one."""
    from leanbayes.cli.compare.runs import Bench
    from leanbayes.cli.compare.start import Starts

    if not lineup.has_starts:
        return Bench(lineup, ask, sets=sets)
    starts = Starts(lineup.point, ask, str(folder), sets)
    for seed in seeds:
        starts.check(seed)
    return Bench(lineup, ask, starts, sets)


def _record(given: Mapping[str, Any], bench: Bench, seeds: range, kept: Kept) -> Record:
    """The record with nothing in it yet."""
    names, parts = list(bench.lineup.settings), bench.ask.parts
    head = {"command": command_of(given, given["methods"]), "data": given["data"]}
    head |= {"table": given["table"]} if given["table"] is not None else {}
    head |= {"seeds": list(seeds)} | ({"parts": list(parts)} if len(parts) > 1 else {})

    def again(label: str, count: int, first: int) -> str:
        return command_of({**given, "seeds": count, "seed": first}, word_of(given, label))

    return Record(
        head,
        {name: command_of(given, word_of(given, name)) for name in names},
        seeds,
        parts,
        most=bench.lineup.seeds,
        baseline=_baseline(given["table"], bench.lineup),
        start=None if bench.starts is None else bench.starts.config(seeds[0]),
        rows_of=kept.rows,
        command_of=again,
    )


def _baseline(table: str | None, lineup: Lineup) -> str | None:
    """Of a table the same row whichever of its rows are asked for."""
    from leanbayes.recipes.tables import point_of

    return lineup.baseline if table is None else point_of(table)


def _run(
    record: Record, bench: Bench, kept: Kept, out: Path | None, more: Callable[[], bool]
) -> list[Exception]:
    """Starts and runs that are missing, each saved as it ends, as long as there are to be `more`.

    One that fails leaves its words.
    """
    from leanbayes.cli.compare.tasks import Work
    from leanbayes.cli.jobs import obeying_signals, run_all

    work, errors = Work(bench), dict[int, Exception]()
    record.begin(bench.begun(record.missing).values())
    tasks = work.tasks(record.missing) if more() else []
    with obeying_signals():
        with closing(run_all(work, tasks, bench.ask.jobs, more, work.ready)) as ends:
            for ended in ends:
                if ended.error is not None:
                    errors[ended.at] = ended.error
                    _fail(record, bench, tasks[ended.at], ended.error)
                else:
                    _note(record, kept, tasks[ended.at], ended.value)
                save(out, text_of(record.plain()))
        _price(record, bench, out)
    return [errors[at] for at in sorted(errors)]


def _note(record: Record, kept: Kept, task: Task, value: Any) -> None:
    """Take over what a start or a run gave."""
    if isinstance(task, int):
        record.begin([value])
        typer.echo(f"start, seed {task}: {value.seconds:.1f} s", err=True)
        return
    record.done[task] = value
    kept.save(*task, value.rows)
    _tell(task[0], value)


def _fail(record: Record, bench: Bench, task: Task, error: Exception) -> None:
    """Take over the words of a run that failed; of a start, for all runs that begin there."""
    if not isinstance(task, int):
        _tell_failure(record, task, error)
        return
    for run in (run for run in record.missing if task in bench.starts_of(run)):
        _tell_failure(record, run, error, "its start failed: ")


def _price(record: Record, bench: Bench, out: Path | None) -> None:
    """Prices that no run has measured: of runs side by side, or that a file lacks."""
    for run in record.unpriced if bench.ask.price else []:
        outcome = record.done[run]
        record.done[run] = replace(outcome, prices=bench.price(run, outcome.origin))
        save(out, text_of(record.plain()))


def _tell_failure(record: Record, run: Run, error: Exception, words: str = "") -> None:
    record.failed[run] = words + " ".join(str(error).split())
    typer.echo(f"{run[0]}, seed {run[1]}: {record.failed[run]}", err=True)


def _tell(name: str, outcome: Outcome) -> None:
    several, whole = len(outcome.figures) > 1, outcome.evaluation is not None
    words = [
        f"{part + ' ' if several else ''}{key} {value:.4g}"
        for part, figures in outcome.figures.items()
        for key, value in figures.items()
        if value is not None and (not whole or is_shown(key))
    ]
    line = f"{name}, seed {outcome.seed}: {', '.join(words)}, {outcome.seconds:.1f} s"
    typer.echo(line, err=True)


@contextmanager
def _telling_left(out: Path | None, record: Record) -> Iterator[None]:
    """Says at the end, also where a signal has brought it, how many runs are missing."""
    try:
        yield
    finally:
        if record.missing:
            more = "nothing is kept without --out" if out is None else "--resume goes on"
            typer.echo(f"stopped with {len(record.missing)} runs left: {more}", err=True)


def _tell_kept(out: Path | None, record: Record) -> None:
    every = len(record.commands) * len(record.seeds)
    if out is not None and record.done:
        typer.echo(f"{len(record.done)} of {every} runs kept from {out.name}", err=True)
