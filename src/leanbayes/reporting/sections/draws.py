"""Figures against the number of draws that a prediction averages."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts import Labels, Series, lines
from leanbayes.reporting.charts.lines import Drawn
from leanbayes.reporting.looks import looks
from leanbayes.reporting.results import Result
from leanbayes.reporting.sections.section import Block, Section, blocks, drawn, evaluated
from leanbayes.reporting.words import capital, title

INTRO = "How many draws a prediction needs: where a line is flat, more of them buy nothing."
FIGURES = ("nll", "accuracy", "ece", "brier", "rmse", "mean_iou")


def section(results: Sequence[Result]) -> Section | None:
    """A chart a figure, a line a method."""
    return blocks("Number of draws", INTRO, results, _block)


def _block(result: Result) -> Block | None:
    charts = drawn([_chart(result, name) for name in FIGURES])
    labels = [row.label for row in evaluated(result) if _has(result, row.label)]
    return Block(charts, labels=labels) if charts else None


def _has(result: Result, label: str) -> bool:
    rows = (row for row in evaluated(result) if row.label == label)
    return any("samples" in s.curves for row in rows for s in row.evaluations[0].splits)


def _chart(result: Result, name: str) -> Chart | None:
    known = looks(result)
    series = []
    for row in evaluated(result):
        clean = row.evaluations[0].clean
        found = clean.line("samples", "samples", name) if clean is not None else None
        if found:
            series.append(Series(row.label, *found, look=known[row.label]))
    labels = Labels(
        f"{result.name} draws {name}",
        f"{title(name)} against number of draws, {result.title}",
        "draws a prediction",
        title(name),
        capital(title(name)),
    )
    return lines(labels, series, Drawn(log=True, dots=True)) if series else None
