"""Regression: how often the truth lies in an interval, against how often it should."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.charts import Labels, Series, lines
from leanbayes.reporting.charts.lines import Drawn
from leanbayes.reporting.looks import looks
from leanbayes.reporting.results import Result
from leanbayes.reporting.sections.section import Block, Section, blocks, evaluated

INTRO = (
    "Share of targets inside the central interval of a nominal probability. On the dashed line "
    "intervals hold what they promise; below it they are too narrow. First seed."
)


def section(results: Sequence[Result]) -> Section | None:
    """A chart a result, a line a method."""
    return blocks("Coverage of intervals", INTRO, results, _block)


def _block(result: Result) -> Block | None:
    known = looks(result)
    series = []
    for row in evaluated(result):
        clean = row.evaluations[0].clean
        found = clean.line("coverage", "nominal", "observed") if clean is not None else None
        if found:
            series.append(Series(row.label, *found, look=known[row.label]))
    words = "Observed against nominal coverage"
    labels = Labels(
        f"{result.name} coverage",
        f"{words}, {result.title}",
        "nominal coverage",
        "observed coverage",
        words,
    )
    chart = lines(labels, series, Drawn(diagonal=True, dots=True, ends=(0.0, 1.0)))
    return Block([chart], labels=[one.label for one in series]) if chart is not None else None
