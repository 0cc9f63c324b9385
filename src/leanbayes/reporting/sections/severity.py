"""Figures against the severity of corruptions."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import quantiles

from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts import Labels, Series, lines
from leanbayes.reporting.charts.lines import Drawn
from leanbayes.reporting.evaluation import by_name, mean
from leanbayes.reporting.looks import Look, looks
from leanbayes.reporting.results import Result, Row
from leanbayes.reporting.sections.section import Block, Section, blocks, drawn, evaluated
from leanbayes.reporting.words import capital, title

INTRO = (
    "Severity 0 is the clean test part. Lines: mean over the kinds of corruption; bars: from the "
    "first to the third quartile of the kinds. Methods in grey are there to compare with: choose "
    "them to see them."
)
FIGURES = ("accuracy", "nll", "ece", "mean_iou", "rmse", "lpd")


def section(results: Sequence[Result]) -> Section | None:
    """A chart a figure, a line a method."""
    return blocks("Corrupted data", INTRO, results, _block)


def _block(result: Result) -> Block | None:
    charts = drawn([chart(result, name, title(name)) for name in FIGURES][:6])
    labels = [row.label for row in evaluated(result)]
    return Block(charts, labels=labels) if charts else None


def chart(
    result: Result,
    name: str,
    words: str,
    ends: tuple[float, float] | None = None,
    unit: str = "",
) -> Chart | None:
    """One figure of all methods."""
    known = looks(result)
    series = [line(row, name, known[row.label]) for row in evaluated(result)]
    found = [one for one in series if one is not None]
    labels = Labels(
        f"{result.name} severity {name}",
        f"{words} against severity of corruption, {result.title}",
        "severity",
        unit or words,
        capital(words),
    )
    return lines(labels, found, Drawn(bars=True, dots=True, ends=ends)) if found else None


def line(row: Row, name: str, look: Look) -> Series | None:
    """Mean and quartiles over the kinds, by severity; None where nothing is corrupted."""
    by_level = values(row, name)
    if not by_level:
        return None
    clean = row.evaluations[0].clean
    start = by_name(row.evaluations, clean.name, name) if clean is not None else None
    found = {**({0.0: [start]} if start is not None else {}), **by_level}
    levels = sorted(found)
    spread = [_quartiles(found[level]) for level in levels]
    return Series(
        row.label,
        levels,
        [mean(found[level]) for level in levels],
        [low for low, _ in spread],
        [high for _, high in spread],
        look=look,
    )


def values(row: Row, name: str) -> dict[float, list[float]]:
    """By severity: a figure of every kind of corruption, averaged over the seeds."""
    found: dict[float, list[float]] = {}
    for split in row.evaluations[0].of_kind("corrupted"):
        value = by_name(row.evaluations, split.name, name)
        if split.level is not None and value is not None:
            found.setdefault(split.level, []).append(value)
    return found


def _quartiles(found: Sequence[float]) -> tuple[float, float]:
    if len(found) < 2:
        return found[0], found[0]
    low, _, high = quantiles(found, n=4, method="inclusive")
    return low, high
