"""Accuracy when the least certain predictions are left to a human."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts import Labels, Series, lines
from leanbayes.reporting.looks import looks
from leanbayes.reporting.results import Result
from leanbayes.reporting.sections.section import Block, Section, blocks, evaluated

INTRO = (
    "Accuracy of the most certain share of the test part: the further left, the more predictions "
    "are refused for their total uncertainty. A line that rises to the left knows its mistakes. "
    "First seed."
)


def section(results: Sequence[Result]) -> Section | None:
    """A chart a result, a line a method."""
    return blocks("Refusing the uncertain", INTRO, results, _block)


def _block(result: Result) -> Block | None:
    known = looks(result)
    series = []
    for row in evaluated(result):
        clean = row.evaluations[0].clean
        found = clean.line("rejection", "coverage", "accuracy") if clean is not None else None
        if found:
            series.append(Series(row.label, *found, look=known[row.label]))
    chart = _chart(result, series)
    return Block([chart], labels=[one.label for one in series]) if chart is not None else None


def _chart(result: Result, series: Sequence[Series]) -> Chart | None:
    words = "Accuracy against share of predictions kept"
    labels = Labels(
        f"{result.name} rejection",
        f"{words}, {result.title}",
        "share of predictions kept",
        "accuracy of these",
        words,
    )
    return lines(labels, series)
