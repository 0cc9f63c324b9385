"""Methods down, figures and prices across."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts import Labels, bars
from leanbayes.reporting.markup import NOTHING, Html, joined, tag
from leanbayes.reporting.results import Result, Row
from leanbayes.reporting.sections.best import best
from leanbayes.reporting.sections.section import Section, gallery
from leanbayes.reporting.table import Cell, Table
from leanbayes.reporting.words import direction, title

KINDS = ("demo", "compare", "evaluate")
READING = (
    "Mean ± standard error over the seeds; the best of a column is bold; ↑ ↓: which way is better."
)
CHARTS = 4


def section(results: Sequence[Result]) -> Section | None:
    """A table a file, with a chart of its first figures."""
    chosen = [result for result in results if result.kind in KINDS and result.rows]
    if not chosen:
        return None
    charts = [chart for result in chosen for chart in figure_charts(result)]
    blocks = [
        joined([tag("h3", r.title), table(r).html(), _notes(r), gallery(figure_charts(r))])
        for r in chosen
    ]
    return Section("Methods", joined([tag("p", READING, class_="soft"), *blocks]), charts)


def table(result: Result, first: str = "method") -> Table:
    """All figures and prices of all rows."""
    figures, prices = result.figure_names, result.price_names
    tops = {name: best(result.rows, name) for name in figures}
    rows = [
        [
            Cell(row.label, row.label),
            *(_figure(row, name, row in tops[name]) for name in figures),
            *(Cell.of(row.prices.get(name)) for name in prices),
        ]
        for row in result.rows
    ]
    head = [first, *map(title, figures), *map(title, prices)]
    return Table(f"{result.title} ({result.name})", head, rows, [0, *map(direction, figures)])


def _figure(row: Row, name: str, is_best: bool) -> Cell:
    return Cell.of(row.figures[name], is_best) if name in row.figures else Cell("-")


def _notes(result: Result) -> Html:
    notes = [
        tag("li", tag("strong", row.label), f": {row.note}") for row in result.rows if row.note
    ]
    if not notes:
        return NOTHING
    return tag("details", tag("summary", "What is special about some of them"), tag("ul", *notes))


def figure_charts(result: Result) -> list[Chart]:
    """A row of dots with errors for each of the first figures that have a better end."""
    if len(result.rows) < 2:
        return []
    names = [name for name in result.figure_names if direction(name)][:CHARTS]
    found = []
    for name in names:
        values = [
            (row.label, row.figures[name].mean, row.figures[name].error)
            for row in result.rows
            if name in row.figures
        ]
        labels = Labels(f"{result.name} {name}", f"{title(name)}, {result.title}", title(name), "")
        chart = bars(labels, values, zero=False)
        found += [] if chart is None else [chart]
    return found
