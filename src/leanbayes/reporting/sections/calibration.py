"""Reliability diagrams: does a confidence of 80 % mean 80 % right answers?"""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts.reliability import Bins, reliability
from leanbayes.reporting.charts.words import Labels
from leanbayes.reporting.looks import Look, looks
from leanbayes.reporting.results import Result, Row
from leanbayes.reporting.sections.section import Block, Section, blocks, drawn, evaluated

INTRO = (
    "Thick lines: share of right answers among predictions of a confidence. The red gap reaches to "
    "their mean confidence; on the dashed line both are equal, below it the model is too sure. "
    "Under each: how many predictions have that confidence. First seed."
)


def section(results: Sequence[Result]) -> Section | None:
    """A small diagram a method."""
    return blocks("Reliability", INTRO, results, _block)


def _block(result: Result) -> Block | None:
    known = looks(result)
    pairs = [(row, known[row.label]) for row in evaluated(result)]
    pairs.sort(key=lambda pair: pair[1].at)
    charts = drawn([_chart(result, row, look) for row, look in pairs])
    labels = [chart.look.label for chart in charts if chart.look is not None]
    return Block(charts, "panels", labels) if charts else None


def _chart(result: Result, row: Row, look: Look) -> Chart | None:
    clean = row.evaluations[0].clean
    found = clean and clean.curve("reliability", "confidence", "accuracy", "count")
    if not clean or not found:
        return None
    error = clean.figures.get("ece")
    labels = Labels(
        f"{result.name} reliability {row.label}",
        f"Reliability of {row.label}, {result.title}",
        "confidence",
        "accuracy",
        row.label,
    )
    return reliability(labels, Bins(*found), look, "" if error is None else f"ECE {error:.4f}")
