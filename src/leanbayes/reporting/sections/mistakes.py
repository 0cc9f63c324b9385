"""Uncertainty of right and of wrong predictions against severity."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.looks import looks
from leanbayes.reporting.results import Result
from leanbayes.reporting.sections.section import Block, Section, blocks, drawn, evaluated
from leanbayes.reporting.sections.severity import chart, line

INTRO = (
    "Mean total uncertainty of predictions that are right, and of those that are wrong, on one "
    "scale. A model to rely on is sure where it is right and unsure where it is wrong, also on "
    "corrupted data."
)
UNIT = "total uncertainty, nats"
FIGURES = {
    "total_right": "Uncertainty of right predictions",
    "total_wrong": "Uncertainty of wrong predictions",
}


def section(results: Sequence[Result]) -> Section | None:
    """Two charts of equal height."""
    return blocks("Right and wrong predictions", INTRO, results, _block)


def _block(result: Result) -> Block | None:
    ends = _ends(result)
    charts = drawn([chart(result, name, words, ends, UNIT) for name, words in FIGURES.items()])
    labels = [row.label for row in evaluated(result)]
    return Block(charts, "charts", labels) if charts else None


def _ends(result: Result) -> tuple[float, float] | None:
    known = looks(result)
    rows = evaluated(result)
    series = [line(row, name, known[row.label]) for row in rows for name in FIGURES]
    every = [v for one in series if one for v in (*one.low, *one.high) if v is not None]
    return (min(every), max(every)) if every else None
