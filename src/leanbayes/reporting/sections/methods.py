"""Methods down, figures and prices across."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.able import able
from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts import Labels, bars
from leanbayes.reporting.looks import baseline
from leanbayes.reporting.markup import NOTHING, Html, joined, tag
from leanbayes.reporting.results import Result, Row
from leanbayes.reporting.sections.best import best
from leanbayes.reporting.sections.section import Section, gallery, several
from leanbayes.reporting.table import Cell, Table
from leanbayes.reporting.words import TIMES, capital, direction, title

KINDS = ("demo", "compare", "evaluate", "evaluation")
READING = (
    "Mean ± standard error over the seeds; the best of a column is bold; ↑ ↓: which way is better. "
    "Click on a head to sort."
)
MARKS = " ▲ ▼: clearly better or worse than {base}, {rule}."
UNABLE = "with less than half of the best accuracy"
CHARTS = 4
MAIN = (
    *("accuracy", "nll", "ece", "brier", "rmse", "lpd", "crps", "mean_iou", "auc_pr"),
    *("error_auroc", "corrupted_accuracy", "corrupted_nll", "corrupted_ece"),
    "mean_corruption_error",
)
STEMS = ("auroc_", "ood_auroc_")
FIGURES, ALL = 14, 300  # columns of the first table, and of the folded one


def section(results: Sequence[Result]) -> Section | None:
    """A table a file, with a chart of its first figures."""
    chosen = [result for result in results if result.kind in KINDS and result.rows]
    if not chosen:
        return None
    drawn = [figure_charts(result) for result in chosen]
    blocks = [
        joined([_head(r, results), table(r).html(), _rest(r), _notes(r), gallery(c)])
        for r, c in zip(chosen, drawn, strict=True)
    ]
    return Section("Methods", joined(blocks), [chart for charts in drawn for chart in charts])


def _head(result: Result, results: Sequence[Result]) -> Html:
    title = [tag("h3", result.title)] if several(results) else []
    return joined([*title, _reading(result)])


def table(result: Result, first: str = "method") -> Table:
    """The first figures and all prices of all rows."""
    return _table(result, ordered(result)[:FIGURES], result.price_names, first)


def ordered(result: Result) -> list[str]:
    """Names of figures; where they are many, those that papers tell come first."""
    names = result.figure_names
    if len(names) <= FIGURES:
        return names
    first = [name for name in names if name in MAIN or name.startswith(STEMS)]
    return [*first, *(name for name in names if name not in first)]


def _table(
    result: Result, figures: Sequence[str], prices: Sequence[str], first: str = "method"
) -> Table:
    tops = {name: best(result.rows, name) for name in figures}
    rows = [
        [
            Cell(row.label, row.label),
            *(_figure(row, name, row in tops[name]) for name in figures),
            *(Cell.of(row.prices.get(name)) for name in prices),
        ]
        for row in result.rows
    ]
    times = [f"{title(name)}, times" if name in TIMES else title(name) for name in prices]
    head = [first, *map(title, figures), *times]
    return Table(f"{result.title} ({result.name})", head, rows, [0, *map(direction, figures)])


def _figure(row: Row, name: str, is_best: bool) -> Cell:
    if name not in row.figures:
        return Cell("-")
    return Cell.of(row.figures[name], is_best, row.against.get(name))


def _reading(result: Result) -> Html:
    base, rule = baseline(result), ""
    if any(row.data.get("significance") for row in result.rows):
        rule = "by the test of the file (the p is in the mark's title)"
    elif any(found.better is not None for row in result.rows for found in row.against.values()):
        rule = "by more than two standard errors of the difference"
    marks = MARKS.format(base=base.label, rule=rule) if base is not None and rule else ""
    return tag("p", f"{READING}{marks}{_unable(result)}", class_="soft")


def _unable(result: Result) -> str:
    """Words on rows that are not marked, whatever their figures."""
    good = able(result.rows)
    left = [row.label for row in result.rows if row not in good]
    return f" Not in bold: {', '.join(left)}, {UNABLE}." if left else ""


def _rest(result: Result) -> Html:
    """Figures that the first table has no room for."""
    names = ordered(result)[FIGURES:]
    if not names:
        return NOTHING
    cut = f", the first {ALL} of them" if len(names) > ALL else ""
    words = tag("summary", f"{len(names):,} more figures{cut}")
    return tag("details", words, _table(result, names[:ALL], ()).html())


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
    found = [_chart(result, name) for name in names]
    return [chart for chart in found if chart is not None]


def _chart(result: Result, name: str) -> Chart | None:
    base = baseline(result)
    values = [
        (row.label, row.figures[name].mean, row.figures[name].error)
        for row in result.rows
        if name in row.figures
    ]
    way = {1: "higher is better", -1: "lower is better"}[direction(name)]
    labels = Labels(
        f"{result.name} {name}",
        f"{title(name)}, {result.title}",
        f"{title(name)}, {way}",
        "",
        capital(title(name)),
    )
    return bars(
        labels,
        values,
        zero=False,
        reference=base.label if base is not None else "",
        best=[row.label for row in best(result.rows, name)],
    )
