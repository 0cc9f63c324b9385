"""The forms of result files: which command wrote one, and what its parts mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from leanbayes.errors import DataError
from leanbayes.reporting.against import against
from leanbayes.reporting.evaluation import Evaluation, evaluation
from leanbayes.reporting.pictures import beside
from leanbayes.reporting.reader import PRICES, Reader, is_number
from leanbayes.reporting.results import Figure, Kind, Origin, Result, Row

# Numbers of an experiment's row that are settings, not figures.
SETTINGS = ("rate", "width", "steps", "splits", "random", "added", "seed", "epochs", "severity")
KNOWN = (
    "demo.json of `leanbayes demo`, the --out of `leanbayes compare`, `experiment`, `evaluate`, "
    "`landscape` or `trajectory`, or what `leanbayes evaluate --json` prints"
)


def parsed(data: Any, path: Path) -> Result:
    """What the file holds, by its form."""
    if isinstance(data, Mapping):
        for fits, form in FORMS:
            if fits(data):
                return form(data, Reader(path))
    found = f"an object with {_keys(data)}" if isinstance(data, Mapping) else type(data).__name__
    raise DataError(f"{path}: is no result file that is known: found {found}. Expected {KNOWN}")


def _demo(data: Mapping[str, Any], read: Reader) -> Result:
    rows = []
    for at, row in enumerate(read.rows(data["methods"], "methods")):
        place = f"methods[{at}]"
        measured = {k: v for k, v in row.items() if isinstance(v, Mapping) and "mean" in v}
        own = [row["evaluation"]] if "evaluation" in row else []
        rows.append(
            Row(
                label=read.word(row.get("label"), f"{place}.label"),
                figures=read.figures(measured, place),
                prices=read.prices(row),
                note=str(row.get("note") or ""),
                data=row,
                evaluations=_evaluations(own, read, f"{place}.evaluation"),
                layers=_layers(row, read, place),
                against=against(row),
            )
        )
    facts = (_seeds(data), f"scored on {data.get('scored_on', 'test data')}")
    left = data.get("left_out")
    more = [f"left out: {k} ({v})" for k, v in left.items()] if isinstance(left, Mapping) else []
    return _result(read, "demo", "Demo: all methods", (*facts, *more), rows, data, [data])


def _compare(data: Mapping[str, Any], read: Reader) -> Result:
    found = read.rows(data["rows"], "rows")
    rows = [_compared(row, read, f"rows[{at}]", data.get("parts")) for at, row in enumerate(found)]
    configs = {row.label: row.data["config"] for row in rows if "config" in row.data}
    table = f" {data['table']}" if isinstance(data.get("table"), str) else ""
    title = f"Comparison{table} on {data.get('data', 'one data set')}"
    facts = (_seeds({"seeds": _seeds_run(found)}) or _seeds(data),)
    return _result(
        read, "compare", title, facts, rows, {**data, "settings": configs}, [data, *found]
    )


def _compared(row: Mapping[str, Any], read: Reader, place: str, parts: Any) -> Row:
    runs = read.rows(row.get("runs") or [], f"{place}.runs")
    found = [run["evaluation"] for run in runs if "evaluation" in run]
    tested = row.get("significance")
    last = str(parts[-1]) if isinstance(parts, list) and len(parts) > 1 else ""
    if last and isinstance(tested, Mapping):
        tested = tested.get(last)
    figures = _of_parts(row.get("figures", {}), parts, read, f"{place}.figures")
    starts = {_start(run): _of_run(run, parts, read, f"{place}.runs") for run in runs}
    return Row(
        label=read.word(row.get("method"), f"{place}.method"),
        figures=_renamed(figures) if found else figures,
        prices=_a_seed(read.prices(row), len(runs)),
        failed=str(row.get("failed") or ""),
        data=row,
        evaluations=_evaluations(found, read, f"{place}.runs.evaluation"),
        layers=_layers(row, read, place),
        against=against({"significance": tested}),
        starts={k: _renamed(v) for k, v in starts.items()} if found else starts,
    )


def _start(run: Mapping[str, Any]) -> str:
    return str(run.get("start") or f"seed {run.get('seed')}")


def _of_run(run: Mapping[str, Any], parts: Any, read: Reader, place: str) -> dict[str, float]:
    """Figures of one run, by the names of the means over all runs."""
    found = _of_parts(_as_means(run.get("figures")), parts, read, place)
    means = {name: figure.mean for name, figure in found.items()}
    return {name: v for name, v in means.items() if v is not None and math.isfinite(v)}


def _as_means(table: Any) -> dict[str, Any]:
    """Numbers as the means of one; down through parts."""
    if not isinstance(table, Mapping):
        return {}
    numbers = {k: {"mean": v} for k, v in table.items() if is_number(v)}
    return {**numbers, **{k: _as_means(v) for k, v in table.items() if isinstance(v, Mapping)}}


def _a_seed(prices: Mapping[str, float], runs: int) -> dict[str, float]:
    """Seconds stand in the file for all runs together, and methods may have different numbers."""
    seconds = ("training_seconds", "seconds")
    return {k: v / max(runs, 1) if k in seconds else v for k, v in prices.items()}


def _renamed(figures: Mapping[str, Any]) -> dict[str, Any]:
    """A suite's mean corruption error, which elsewhere has the name of a calibration error."""
    return {("mean_corruption_error" if k == "mce" else k): v for k, v in figures.items()}


def _of_parts(table: Any, parts: Any, read: Reader, place: str) -> dict[str, Figure]:
    """Figures of one part by name; of several the last part's, then the others' with its name."""
    if not isinstance(parts, list) or len(parts) < 2 or not isinstance(table, Mapping):
        return read.figures(table, place)
    *others, last = (str(part) for part in parts)
    found = read.figures(table.get(last, {}), f"{place}.{last}")
    for part in others:
        own = read.figures(table.get(part, {}), f"{place}.{part}")
        found |= {f"{name} ({part})": figure for name, figure in own.items()}
    return found


def _experiment(data: Mapping[str, Any], read: Reader) -> Result:
    found = read.rows(data["rows"], "rows")
    rows = [
        Row(
            label=read.word(row.get("label"), f"rows[{at}].label"),
            figures=_measured(row, read, f"rows[{at}]"),
            prices=read.prices(row),
            data=row,
        )
        for at, row in enumerate(found)
    ]
    title = f"Experiment {read.word(data['experiment'], 'experiment')}"
    return _result(read, "experiment", title, (), rows, data, found)


def _measured(row: Mapping[str, Any], read: Reader, place: str) -> dict[str, Figure]:
    """Numbers of an experiment that are neither prices nor settings."""
    figures: dict[str, Figure] = {}
    for key, value in row.items():
        if is_number(value) and key not in (*PRICES, *SETTINGS):
            figures[key] = Figure(float(value))
        elif isinstance(value, Mapping) and {"mean", "error"} <= value.keys():
            figures[key] = read.figure(value, f"{place}.{key}")
    return figures


def _evaluate(data: Mapping[str, Any], read: Reader) -> Result:
    figures = {k: Figure(float(v)) for k, v in data.items() if is_number(v) and k != "count"}
    row = Row(label=read.path.stem, figures=figures, data=data)
    facts = (f"part {data['part']}", f"{data['count']} examples")
    return _result(read, "evaluate", f"Evaluation on {data['data']}", facts, [row], data, [])


def _suite(data: Mapping[str, Any], read: Reader) -> Result:
    found = evaluation(data.get("evaluation"), read, "evaluation")
    label = read.word(data.get("method"), "method")
    row = Row(
        label=label,
        figures={name: Figure(value) for name, value in _renamed(found.summary).items()},
        prices=read.prices({**data, **_price(found)}),
        data=data,
        evaluations=(found,),
        layers=_layers(data, read, "file"),
    )
    title = f"Evaluation on {found.data or 'one data set'}"
    facts = (f"suite {found.suite}" if found.suite else "", found.task)
    settings = {"settings": {label: found.settings}, "picture": data.get("picture")}
    return _result(read, "evaluation", title, facts, [row], settings, [data])


def _price(found: Evaluation) -> dict[str, Any]:
    return {"samples": found.settings.get("samples"), "seconds": found.seconds}


def _alone(kind: Kind, title: str) -> Form:
    """A file about one method that has a section of its own."""

    def form(data: Mapping[str, Any], read: Reader) -> Result:
        label = read.word(data.get("method"), "method")
        row = Row(label=label, figures={}, data=data)
        return _result(read, kind, f"{title} of {label}", (), [row], data, [data])

    return form


def _evaluations(found: Sequence[Any], read: Reader, place: str) -> tuple[Evaluation, ...]:
    return tuple(evaluation(each, read, place) for each in found if each is not None)


def _layers(row: Mapping[str, Any], read: Reader, place: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(read.rows(row.get("layers") or [], f"{place}.layers"))


def _result(  # noqa: PLR0913
    read: Reader,
    kind: Kind,
    title: str,
    facts: Sequence[str],
    rows: Sequence[Row],
    data: Mapping[str, Any],
    origins: Iterable[Mapping[str, Any]],
) -> Result:
    settings = data.get("settings", {})
    return Result(
        name=read.path.name,
        kind=kind,
        title=title,
        facts=tuple(filter(None, facts)),
        rows=tuple(rows),
        settings=settings if isinstance(settings, Mapping) else {},
        origins=tuple(dict.fromkeys(filter(None, map(_origin, origins)))),
        pictures=beside(read.path, [data, *(row.data for row in rows)]),
    )


def _origin(record: Mapping[str, Any]) -> Origin | None:
    command = record.get("command")
    if not isinstance(command, str):
        return None
    versions = record.get("environment", record.get("versions"))
    table = versions if isinstance(versions, Mapping) else {}
    words = tuple((str(key), str(value)) for key, value in table.items())
    return Origin(command, str(record.get("commit") or ""), words)


def _seeds(data: Mapping[str, Any]) -> str:
    seeds = data.get("seeds")
    if not isinstance(seeds, list) or not seeds:
        return ""
    return f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"


def _seeds_run(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Seeds that the rows have, of those that were asked for."""
    listed = (row.get("runs") for row in rows)
    runs = [run for found in listed if isinstance(found, list) for run in found]
    return list(dict.fromkeys(run["seed"] for run in runs if isinstance(run.get("seed"), int)))


def _keys(data: Mapping[str, Any]) -> str:
    return ", ".join(str(key)[:30] for key in list(data)[:6]) or "nothing in it"


Form = Callable[[Mapping[str, Any], Reader], Result]
FORMS: Sequence[tuple[Callable[[Mapping[str, Any]], bool], Form]] = (
    (lambda d: d.get("kind") == "evaluation", _suite),
    (lambda d: d.get("kind") == "landscape", _alone("landscape", "Loss around the members")),
    (lambda d: d.get("kind") == "trajectory", _alone("trajectory", "Last checkpoints")),
    (lambda d: "experiment" in d and "rows" in d, _experiment),
    (lambda d: "methods" in d and "by_seed" in d, _demo),
    (lambda d: "rows" in d and "data" in d and "command" in d, _compare),
    (lambda d: {"data", "part", "count"} <= d.keys(), _evaluate),
)
