"""The rows of experiments as tables."""

from __future__ import annotations

from collections.abc import Sequence

from leanbayes.reporting.forms import SETTINGS
from leanbayes.reporting.markup import joined, tag
from leanbayes.reporting.reader import is_number
from leanbayes.reporting.results import Result
from leanbayes.reporting.sections.best import best
from leanbayes.reporting.sections.section import Section
from leanbayes.reporting.table import Cell, Table
from leanbayes.reporting.words import direction, title


def section(results: Sequence[Result]) -> Section | None:
    """A table an experiment."""
    chosen = [result for result in results if result.kind == "experiment" and result.rows]
    if not chosen:
        return None
    blocks = [joined([tag("h3", result.title), _table(result).html()]) for result in chosen]
    return Section("Experiments", joined(blocks))


def _table(result: Result) -> Table:
    """Settings that are numbers, figures, truths and prices of every part."""
    settings = [key for key in SETTINGS if any(is_number(row.data.get(key)) for row in result.rows)]
    truths = _truths(result)
    figures, prices = result.figure_names, result.price_names
    tops = {name: best(result.rows, name) for name in figures} if one_table(result) else {}
    rows = [
        [
            Cell(row.label, row.label),
            *(Cell.of(_number(row.data.get(key))) for key in settings),
            *(Cell.of(row.figures.get(n), row in tops.get(n, [])) for n in figures),
            *(_truth(row.data.get(key)) for key in truths),
            *(Cell.of(row.prices.get(name)) for name in prices),
        ]
        for row in result.rows
    ]
    names = [*settings, *figures, *truths, *prices]
    ways = [direction(name) if name in figures else 0 for name in names]
    caption = f"{result.title} ({result.name})"
    return Table(caption, ["part", *map(title, names)], rows, [0, *ways])


def one_table(result: Result) -> bool:
    """False where rows are of several data sets: their figures are not to be compared."""
    return len({str(row.data.get("data")) for row in result.rows}) < 2


def _truths(result: Result) -> list[str]:
    found = (key for row in result.rows for key, v in row.data.items() if isinstance(v, bool))
    return list(dict.fromkeys(found))


def _truth(value: object) -> Cell:
    word = {True: "yes", False: "no"}.get(value, "-") if isinstance(value, bool) else "-"
    return Cell(word, word)


def _number(value: object) -> float | None:
    return float(value) if is_number(value) else None
