"""How a method looks throughout a page, and which methods a reader sees first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leanbayes.reporting.able import able
from leanbayes.reporting.canvas import slug
from leanbayes.reporting.markup import Html, tag
from leanbayes.reporting.results import Result, Row
from leanbayes.reporting.words import direction

FEW, ALL = 6, 8  # methods in colour at first; so many at most are all in colour
COLOURS = 8  # c0 to c7 of the style, of Okabe and Ito: they differ for colour-blind people too
LEADING = ("nll", "rmse", "mean_iou", "lpd", "auc_pr", "accuracy")  # what a file is judged by
DETECTING = ("ood_auroc_epistemic", "auroc_epistemic_", "ood_auroc_total", "auroc_total_")


@dataclass(frozen=True)
class Look:
    """Colour and dashes of a line; `on` is False for what is grey until a reader asks for it."""

    key: str
    label: str
    at: int
    on: bool = True

    @property
    def colour(self) -> str:
        """Class of the colour."""
        return f"c{self.at % COLOURS}"

    @property
    def dash(self) -> str:
        """Class of the dashes."""
        return f"d{self.at // COLOURS % 3}"

    @property
    def classes(self) -> str:
        """Classes of all that shows the method."""
        return f"{self.colour} method{'' if self.on else ' off'}"


def plain(labels: Sequence[str]) -> list[Look]:
    """Looks of lines that are no methods: none can be switched."""
    return [Look("", label, at) for at, label in enumerate(labels)]


def looks(result: Result) -> dict[str, Look]:
    """The look of every method of a result, by label; those that matter have the first colours."""
    rows = [row for row in result.rows if not row.failed]
    first = [row.label for row in leading(result)]
    order = dict.fromkeys([*first, *(row.label for row in rows)])
    stem = slug(result.name)
    few = len(order) if len(order) <= ALL else len(first)
    places = {row.label: at for at, row in enumerate(rows)}
    return {
        label: Look(f"{stem}-{places[label]}", label, at, at < few)
        for at, label in enumerate(order)
    }


def leading(result: Result) -> list[Row]:
    """The baseline, then in turns the best of each figure that papers look at."""
    rows = [row for row in result.rows if not row.failed]
    found = {row.label: row for row in ([baseline(result)] if rows else []) if row is not None}
    ranks = [_ranked(able(rows), name) for name in _figures(result)]
    for at in range(len(rows)):
        for ranked in ranks:
            if at < len(ranked) and len(found) < FEW:
                found.setdefault(ranked[at].label, ranked[at])
    for row in rows:
        if len(found) < FEW:
            found.setdefault(row.label, row)
    return list(found.values())


def baseline(result: Result) -> Row | None:
    """The deterministic network, named map; else the first row."""
    rows = [row for row in result.rows if not row.failed]
    named = (row for row in rows if row.label.lower() in ("map", "point", "deterministic"))
    return next(named, rows[0] if rows else None)


def _figures(result: Result) -> Iterable[str]:
    names = result.figure_names
    first = [name for name in LEADING if name in names][:1]
    detect = [n for stem in DETECTING for n in names if n.startswith(stem)][:1]
    return [*first, *detect, *(name for name in ("ece",) if name in names)]


def _ranked(rows: Sequence[Row], name: str) -> list[Row]:
    found = [row for row in rows if name in row.figures and row.figures[name].mean is not None]
    return sorted(found, key=lambda row: -direction(name) * (row.figures[name].mean or 0.0))


def chooser(result: Result, labels: Iterable[str]) -> Html:
    """Legend and switch in one: a box a method. All legends of a page switch together."""
    known = looks(result)
    shown = [known[label] for label in dict.fromkeys(labels) if label in known]
    chips = [_chip(look) for look in sorted(shown, key=lambda look: look.at)]
    more = (
        [tag("button", words, type="button", class_="some", data_some=words, hidden=True)
         for words in ("few", "all")]
        if any(not look.on for look in shown)
        else []
    )  # fmt: skip
    return tag("div", *chips, *more, class_="chooser", role="group", aria_label="Methods shown")


def _chip(look: Look) -> Html:
    box = tag(
        "input",
        type="checkbox",
        data_for=look.key,
        checked=look.on,
        data_first="1" if look.on else "0",
        autocomplete="off",
    )
    return tag("label", box, key(look), tag("bdi", look.label), class_="chip")


def key(look: Look) -> Html:
    """A piece of the line."""
    stroke = tag("path", d="M1 6 L23 6", class_=f"line {look.dash}")
    return tag("svg", stroke, viewBox="0 0 24 12", class_=f"key {look.colour}", aria_hidden="true")
