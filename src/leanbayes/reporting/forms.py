"""The forms of result files: which command wrote one, and what its parts mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from leanbayes.errors import DataError
from leanbayes.reporting.results import Figure, Kind, Origin, Result, Row

PRICES = (
    *("parameters", "parameters_added", "samples", "step_ratio", "training_ratio"),
    *("predict_ratio", "training_seconds", "seconds"),
)
# Numbers of an experiment's row that are settings, not figures.
SETTINGS = ("rate", "width", "steps", "splits", "random", "added", "seed", "epochs", "severity")
KNOWN = (
    "demo.json of `leanbayes demo`, the --out of `leanbayes compare` or `leanbayes experiment`, or "
    "what `leanbayes evaluate --json` prints"
)


def parsed(data: Any, path: Path) -> Result:
    """What the file holds, by its form."""
    if isinstance(data, Mapping):
        for fits, form in FORMS:
            if fits(data):
                return form(data, Reader(path))
    found = f"an object with {_keys(data)}" if isinstance(data, Mapping) else type(data).__name__
    raise DataError(f"{path}: is no result file that is known: found {found}. Expected {KNOWN}")


class Reader:
    """Values of a file by their types; whatever is wrong is told with its place."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def wrong(self, place: str, wanted: str, found: Any) -> DataError:
        """An error about one place."""
        return DataError(f"{self.path}: {place} should be {wanted}, found {str(found)[:80]!r}")

    def rows(self, value: Any, place: str) -> list[Mapping[str, Any]]:
        """A list of objects."""
        if not isinstance(value, list) or not all(isinstance(row, Mapping) for row in value):
            raise self.wrong(place, "a list of objects", value)
        return value

    def word(self, value: Any, place: str) -> str:
        """A text."""
        if not isinstance(value, str):
            raise self.wrong(place, "a text", value)
        return value

    def number(self, value: Any, place: str) -> float | None:
        """A number, or nothing."""
        if value is not None and not is_number(value):
            raise self.wrong(place, "a number", value)
        return None if value is None else float(value)

    def figures(self, table: Any, place: str) -> dict[str, Figure]:
        """Objects with a mean and an error, by name."""
        if not isinstance(table, Mapping):
            raise self.wrong(place, "an object", table)
        return {
            name: self.figure(found, f"{place}.{name}")
            for name, found in table.items()
            if isinstance(found, Mapping)
        }

    def figure(self, found: Mapping[str, Any], place: str) -> Figure:
        """Mean and error, under either of their names."""
        error = found.get("standard_error", found.get("error"))
        return Figure(self.number(found.get("mean"), place), self.number(error, place))

    def prices(self, row: Mapping[str, Any]) -> dict[str, float]:
        """What a row cost."""
        found = {name: self.number(row.get(name), name) for name in PRICES if name in row}
        return {name: value for name, value in found.items() if value is not None}


def is_number(value: Any) -> bool:
    """True for numbers, not for truth values; nor for whole ones that no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 2**1000


def _demo(data: Mapping[str, Any], read: Reader) -> Result:
    rows = []
    for at, row in enumerate(read.rows(data["methods"], "methods")):
        place = f"methods[{at}]"
        measured = {k: v for k, v in row.items() if isinstance(v, Mapping) and "mean" in v}
        rows.append(
            Row(
                label=read.word(row.get("label"), f"{place}.label"),
                figures=read.figures(measured, place),
                prices=read.prices(row),
                note=str(row.get("note") or ""),
                data=row,
            )
        )
    facts = (_seeds(data), f"scored on {data.get('scored_on', 'test data')}")
    left = data.get("left_out")
    more = [f"left out: {k} ({v})" for k, v in left.items()] if isinstance(left, Mapping) else []
    return _result(read, "demo", "Demo: all methods", (*facts, *more), rows, data, [data])


def _compare(data: Mapping[str, Any], read: Reader) -> Result:
    found = read.rows(data["rows"], "rows")
    rows = [
        Row(
            label=read.word(row.get("method"), f"rows[{at}].method"),
            figures=read.figures(row.get("figures", {}), f"rows[{at}].figures"),
            prices=read.prices(row),
            failed=str(row.get("failed") or ""),
            data=row,
        )
        for at, row in enumerate(found)
    ]
    configs = {row.label: row.data["config"] for row in rows if "config" in row.data}
    title = f"Comparison on {data.get('data', 'one data set')}"
    return _result(
        read, "compare", title, (_seeds(data),), rows, {"settings": configs}, [data, *found]
    )


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
    return _result(read, "evaluate", f"Evaluation on {data['data']}", facts, [row], {}, [])


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


def _keys(data: Mapping[str, Any]) -> str:
    return ", ".join(str(key)[:30] for key in list(data)[:6]) or "nothing in it"


Form = Callable[[Mapping[str, Any], Reader], Result]
FORMS: Sequence[tuple[Callable[[Mapping[str, Any]], bool], Form]] = (
    (lambda d: "experiment" in d and "rows" in d, _experiment),
    (lambda d: "methods" in d and "by_seed" in d, _demo),
    (lambda d: "rows" in d and "data" in d and "command" in d, _compare),
    (lambda d: {"data", "part", "count"} <= d.keys(), _evaluate),
)
