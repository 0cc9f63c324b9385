"""Tables that sort, with the best in bold, and the same as CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from leanbayes.reporting.markup import NOTHING, Html, joined, tag
from leanbayes.reporting.results import Difference, Figure
from leanbayes.reporting.words import figure, number

LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
}


@dataclass(frozen=True)
class Cell:
    """What is shown, by what it is sorted, whether it is the best, how it differs from others."""

    shown: str
    value: float | str | None = None
    best: bool = False
    error: float | None = None
    against: Difference | None = None

    @staticmethod
    def of(
        found: Figure | float | None, best: bool = False, against: Difference | None = None
    ) -> Cell:
        """A figure with its error, or a price."""
        if isinstance(found, Figure):
            return Cell(figure(found.mean, found.error), found.mean, best, found.error, against)
        return Cell(number(found, digits=2), found, best)


@dataclass(frozen=True)
class Table:
    """Rows of cells under titles; arrows say which end of a column is the better one."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    directions: Sequence[int] = ()

    def html(self) -> Html:
        """A table whose columns sort, and buttons that copy it."""
        heads = [self._head(at, title) for at, title in enumerate(self.head)]
        body = [tag("tr", *self._cells(row)) for row in self.rows]
        shown = tag(
            "table",
            tag("caption", self.caption),
            tag("thead", tag("tr", *heads)),
            tag("tbody", *body),
            class_="sortable",
        )
        tools = tag("div", *(self._copy(kind) for kind in ("CSV", "LaTeX")), class_="tools")
        scroll = tag(
            "div", shown, class_="scroll", tabindex=0, role="region", aria_label=self.caption
        )
        return tag("div", scroll, tools, class_="table")

    def _head(self, at: int, title: str) -> Html:
        way = self.directions[at] if at < len(self.directions) else 0
        arrow = {1: " ↑", -1: " ↓", 0: ""}[way]
        words = {1: "higher is better", -1: "lower is better", 0: None}[way]
        button = tag("button", f"{title}{arrow}", type="button", title=words)
        return tag("th", button, scope="col", aria_sort="none")

    def _cells(self, row: Sequence[Cell]) -> list[Html]:
        first, *rest = row
        return [tag("th", first.shown, scope="row", data_value=first.shown), *map(_cell, rest)]

    def _copy(self, kind: str) -> Html:
        content = self.csv() if kind == "CSV" else self.latex()
        button = tag("button", f"Copy as {kind}", type="button", class_="copy")
        return joined([button, tag("textarea", content, hidden=True, readonly=True)])

    def csv(self) -> str:
        """Comma-separated text in full precision; standard errors have columns of their own."""
        wide = [any(row[at].error is not None for row in self.rows) for at in range(len(self.head))]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        titles = zip(self.head, wide, strict=True)
        writer.writerow(
            [w for t, two in titles for w in ([t, f"{t} (standard error)"] if two else [t])]
        )
        for row in self.rows:
            cells = zip(row, wide, strict=True)
            writer.writerow([word for cell, two in cells for word in _plain(cell, two)])
        return out.getvalue()

    def latex(self) -> str:
        """A tabular, for booktabs."""
        lines = [" & ".join(map(_latex, self.head)), *(self._latex_row(row) for row in self.rows)]
        head, *body = (f"{line} \\\\" for line in lines)
        columns = "l" + "r" * (len(self.head) - 1)
        inside = "\n".join([r"\toprule", head, r"\midrule", *body, r"\bottomrule"])
        return f"\\begin{{tabular}}{{{columns}}}\n{inside}\n\\end{{tabular}}\n"

    def _latex_row(self, row: Sequence[Cell]) -> str:
        words = (f"{_latex(cell.shown)}{_star(cell)}" for cell in row)
        bold = (cell.best for cell in row)
        return " & ".join(
            f"\\textbf{{{word}}}" if strong else word
            for word, strong in zip(words, bold, strict=True)
        )


def _cell(cell: Cell) -> Html:
    value = cell.value
    if isinstance(value, float | int) and not math.isfinite(value):
        value = None
    inside = tag("strong", cell.shown) if cell.best else cell.shown
    kind = "text" if isinstance(value, str) else None
    return tag("td", inside, _mark(cell), data_value="" if value is None else value, class_=kind)


def _mark(cell: Cell) -> Html:
    """A triangle where the difference to the baseline is clear."""
    found = cell.against
    if found is None or found.better is None:
        return NOTHING
    word, sign = ("good", "▲") if found.better else ("bad", "▼")
    about = f"clearly {'better' if found.better else 'worse'}: {found.words}"
    return tag("span", sign, class_=f"mark {word}", title=about, role="img", aria_label=about)


def _plain(cell: Cell, two: bool) -> list[str]:
    value = cell.shown if cell.value is None else str(cell.value)
    return [value, "" if cell.error is None else str(cell.error)] if two else [value]


def _star(cell: Cell) -> str:
    better = cell.against.better if cell.against is not None else None
    return "" if better is None else r"$^{\uparrow}$" if better else r"$^{\downarrow}$"


def _latex(words: str) -> str:
    return "".join(LATEX.get(character, character) for character in words)
