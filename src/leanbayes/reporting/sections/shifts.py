"""Figures against the level of other shifts: noise mixed in, rotation, salt and pepper."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts import Labels, Series, lines
from leanbayes.reporting.charts.lines import Drawn
from leanbayes.reporting.evaluation import by_name
from leanbayes.reporting.looks import Look, looks
from leanbayes.reporting.results import Result, Row
from leanbayes.reporting.sections.section import Block, Section, blocks, drawn, evaluated
from leanbayes.reporting.words import capital, title

INTRO = "Figures against how far the test data are shifted; level 0 is the clean test part."
FIGURES = ("accuracy", "nll", "ece", "total", "rmse", "mean_iou")
MOST = 4  # charts a shift
CALLED = {"rotate": "rotation", "mix_noise": "mixed-in noise"}
WORDS = {"total": "total uncertainty, nats"}


def section(results: Sequence[Result]) -> Section | None:
    """A block a shift, a chart a figure, a line a method."""
    return blocks("Other shifts", INTRO, results, _block)


def _block(result: Result) -> Block | None:
    rows = evaluated(result)
    charts: list[Chart] = []
    for shift in names(rows):
        own = [_chart(result, rows, shift, name) for name in FIGURES]
        charts += drawn(own)[:MOST]
    return Block(charts, labels=[row.label for row in rows]) if charts else None


def names(rows: Sequence[Row]) -> list[str]:
    """Shifts with at least two levels."""
    levels: dict[str, set[float]] = {}
    for row in rows:
        for split in row.evaluations[0].of_kind("shifted"):
            if split.level is not None:
                levels.setdefault(split.shift, set()).add(split.level)
    return [name for name, found in levels.items() if len(found) > 1]


def along(row: Row, shift: str, name: str) -> dict[float, float]:
    """A figure by level, averaged over the seeds; the clean part is level 0 where none is."""
    found = {}
    for split in row.evaluations[0].of_kind("shifted"):
        value = by_name(row.evaluations, split.name, name)
        if split.shift == shift and split.level is not None and value is not None:
            found[split.level] = value
    clean = row.evaluations[0].clean
    start = by_name(row.evaluations, clean.name, name) if clean is not None else None
    if found and start is not None and not any(level <= 0 for level in found):
        found[0.0] = start
    return dict(sorted(found.items()))


def _chart(result: Result, rows: Sequence[Row], shift: str, name: str) -> Chart | None:
    known = looks(result)
    series = [_series(row, known[row.label], along(row, shift, name)) for row in rows]
    found = [one for one in series if len(one.x) > 1]
    words, called = WORDS.get(name, title(name)), CALLED.get(shift, shift.replace("_", " "))
    labels = Labels(
        f"{result.name} {shift} {name}",
        f"{words} against level of {called}, {result.title}",
        f"level of {called}",
        words,
        f"{capital(words)}: {called}",
    )
    return lines(labels, found, Drawn(dots=True)) if found else None


def _series(row: Row, look: Look, found: dict[float, float]) -> Series:
    return Series(row.label, list(found), list(found.values()), look=look)
