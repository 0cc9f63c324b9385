"""Curves of experiments: one row with its band, all rows in one chart, figures by a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts import Labels, Series, lines
from leanbayes.reporting.markup import joined, tag
from leanbayes.reporting.reader import is_number
from leanbayes.reporting.results import Result, Row
from leanbayes.reporting.sections.section import Section, gallery
from leanbayes.reporting.words import direction, title

SWEEPS = ("rate", "width", "severity", "samples")  # settings that figures are drawn against
SETTINGS = ("config", "method")  # lists in there are no measurements
MOST_LINES, MOST_POINTS = 24, 1000


def section(results: Sequence[Result]) -> Section | None:
    """All curves of all experiments."""
    found = {result: _charts(result) for result in results if result.kind == "experiment"}
    blocks = [
        joined([tag("h3", result.title), gallery(charts)])
        for result, charts in found.items()
        if charts
    ]
    every = [chart for charts in found.values() for chart in charts]
    return Section("Curves", joined(blocks), every) if blocks else None


def _charts(result: Result) -> list[Chart]:
    drawn = [*(_fit(result, row) for row in result.rows), *_overlays(result), *_sweeps(result)]
    return [chart for chart in drawn if chart is not None]


def _fit(result: Result, row: Row) -> Chart | None:
    """A regression with twice its standard deviation, and the data."""
    x, mean, std = (_numbers(row.data.get(key)) for key in ("x", "mean", "std"))
    if not x or len(x) != len(mean) or len(x) != len(std):
        return None
    epistemic = _numbers(row.data.get("epistemic_std"))
    name = f"{result.name} {row.label}"
    dots = [(p[0], p[1]) for p in row.data.get("points") or () if _is_pair(p)][:MOST_POINTS]
    series = [_banded("mean ± 2 std", x, mean, std, dots)]
    if len(epistemic) == len(x):
        series.append(_banded("epistemic part", x, mean, epistemic, ()))
    return lines(Labels(name, row.label, "x", "y"), series)


def _banded(
    label: str,
    x: Sequence[float],
    mean: Sequence[float],
    std: Sequence[float],
    dots: Sequence[tuple[float, float]],
) -> Series:
    low = [m - 2 * s for m, s in zip(mean, std, strict=True)]
    high = [m + 2 * s for m, s in zip(mean, std, strict=True)]
    return Series(label, x, mean, low, high, dots)


def _overlays(result: Result) -> list[Chart | None]:
    """Objects of lists, {"degrees": [...], "accuracy": [...]}: a chart a list, a line a row."""
    groups: dict[tuple[str, str, str], list[Series]] = {}
    for row in result.rows:
        for key, value in row.data.items():
            if key in SETTINGS or not isinstance(value, Mapping):
                continue
            (x_name, x), *rest = _lists(value) or [("", [])]
            for name, y in rest:
                groups.setdefault((key, x_name, name), []).append(Series(row.label, x, y))
    return [
        lines(_labels(result, f"{title(name)}, {title(key)}", x, name), series[:MOST_LINES])
        for (key, x, name), series in groups.items()
    ]


def _lists(table: Mapping[str, Any]) -> list[tuple[str, list[float]]]:
    """Lists of numbers that are equally long as the first of them."""
    found = [(key, _numbers(value)) for key, value in table.items()]
    found = [(key, values) for key, values in found if len(values) > 1]
    return [(key, values) for key, values in found if len(values) == len(found[0][1])]


def _sweeps(result: Result) -> list[Chart | None]:
    """Figures against a setting that rows differ in, a line for all that are alike otherwise."""
    charts = []
    for key in SWEEPS:
        values = {row.data.get(key) for row in result.rows if is_number(row.data.get(key))}
        if len(values) > 1:
            names = [name for name in result.figure_names if direction(name)]
            charts += [_sweep(result, key, name) for name in names]
    return charts


def _sweep(result: Result, key: str, name: str) -> Chart | None:
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in result.rows:
        found = row.figures.get(name)
        if is_number(row.data.get(key)) and found is not None and found.mean is not None:
            groups.setdefault(_kin(row), []).append((float(row.data[key]), found.mean))
    series = [
        Series(label, [x for x, _ in sorted(places)], [y for _, y in sorted(places)])
        for label, places in groups.items()
    ]
    words = f"{title(name)} against {title(key)}"
    return lines(_labels(result, words, key, name), series)


def _kin(row: Row) -> str:
    """What rows of one line share: the name of the row's kind, or of its method."""
    method = row.data.get("method")
    named = method.get("name") if isinstance(method, Mapping) else method
    return str(row.data.get("name") or named or "")


def _labels(result: Result, words: str, x: str, y: str) -> Labels:
    return Labels(f"{result.name} {words}", f"{words}, {result.title}", title(x), title(y))


def _numbers(value: Any) -> list[float]:
    """A list of numbers; empty where it is something else."""
    if not isinstance(value, list) or not all(is_number(v) for v in value):
        return []
    return [float(v) for v in value]


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_number, value))
