"""Uncertainty of known and of foreign data: histograms, and how well they are told apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from leanbayes.reporting.axes import drawable
from leanbayes.reporting.canvas import Chart
from leanbayes.reporting.charts.densities import Density, densities
from leanbayes.reporting.charts.lines import legend
from leanbayes.reporting.charts.words import Labels
from leanbayes.reporting.evaluation import Split
from leanbayes.reporting.looks import Look, looks
from leanbayes.reporting.results import Result, Row
from leanbayes.reporting.sections.section import Block, Section, blocks, drawn, evaluated

INTRO = (
    "Share of rows by uncertainty (square-root scale up): a model that knows what it does not know "
    "is unsure of foreign data. AUROC: how often a foreign row is the less sure one of a pair; 0.5 "
    "is chance. The epistemic part is what more data would take away; it is often small, so its "
    "scale across is that of square roots, and ends where 99.5 % of the rows of every part and "
    "method lie: the last bin takes the others. First seed."
)
MOST = 4  # foreign parts in one picture


@dataclass(frozen=True)
class Kind:
    """How an uncertainty is drawn.

    Attributes:
        name: In files.
        share: Of the rows of every split lie within the axis.
        least: End of an axis.
        root: A square-root scale across.
    """

    name: str
    share: float = 1.0
    least: float = 0.0
    root: bool = False

    @property
    def heading(self) -> str:
        """Above the charts."""
        return f"By {self.name} uncertainty" + (", square-root scale across" if self.root else "")


KINDS = (Kind("total"), Kind("epistemic", share=0.995, least=0.001, root=True))


def section(results: Sequence[Result]) -> Section | None:
    """Two rows of small histograms: total and epistemic."""
    return blocks("Known and foreign data", INTRO, results, _block)


def _block(result: Result) -> Block | None:
    found = {kind.heading: _charts(result, kind) for kind in KINDS}
    groups = [(words, charts) for words, charts in found.items() if charts]
    if not groups:
        return None
    every = [chart for _, charts in groups for chart in charts]
    labels = [chart.look.label for chart in every if chart.look is not None]
    return Block((), "panels", labels, before=legend(every[0].keys), groups=groups)


def _charts(result: Result, kind: Kind) -> list[Chart]:
    """One a method, all with the same end, so that they can be compared."""
    known = looks(result)
    rows = sorted(evaluated(result), key=lambda row: known[row.label].at)
    found = [(row, _found(row, kind.name)) for row in rows]
    every = [one for _, several in found for one in several]
    grids = {tuple(one.edges) for one in every}
    end = max([kind.least, *(one.reach(kind.share) for one in every)])
    whole = [(row, [_whole(one, grids) for one in several]) for row, several in found if several]
    return drawn([_chart(result, row, known[row.label], kind, each, end) for row, each in whole])


def foreign(row: Row) -> list[Split]:
    """Parts that a model should be unsure of, with histograms."""
    every = row.evaluations[0].of_kind("foreign", "adversarial")
    return [split for split in every if "histogram" in split.curves][:MOST]


def _found(row: Row, part: str) -> list[Density]:
    """Of the clean and the foreign splits; nothing where there is nothing to compare."""
    clean, others = row.evaluations[0].clean, foreign(row)
    if clean is None or not others or (part == "epistemic" and not _is_random(row)):
        return []
    found = [_density(split, part) for split in (clean, *others)]
    known = [one for one in found if one is not None]
    return known if len(known) == len(found) else []


def _density(split: Split, part: str) -> Density | None:
    """Counts between edges of their own, or between the common ones that older files have."""
    curve = split.curves.get("histogram", {})
    edges = [v for v in curve.get(f"{part}_edges", curve.get("edges", ())) if v is not None]
    counts = [count or 0.0 for count in curve.get(part, ())]
    if not counts or len(edges) != len(counts) + 1 or min(*edges, *counts) < 0:
        return None
    one = Density(named(split), edges, counts)
    rising = all(a < b for a, b in pairwise(edges))
    return one if rising and all(map(drawable, (*edges, *counts))) else None


def _whole(one: Density, grids: Iterable[tuple[float, ...]]) -> Density:
    """With all the edges in use: a file has them up to the last bin that holds a row."""
    own = tuple(one.edges)
    edges = max((grid for grid in grids if grid[: len(own)] == own), key=len)
    return replace(one, edges=edges, counts=[*one.counts, *[0.0] * (len(edges) - len(own))])


def _chart(
    result: Result, row: Row, look: Look, kind: Kind, found: Sequence[Density], end: float
) -> Chart | None:
    scores = [split.figures.get(f"auroc_{kind.name}") for split in foreign(row)]
    told = ", ".join(f"{v:.3f}" for v in scores if v is not None)
    labels = Labels(
        f"{result.name} {kind.name} {row.label}",
        f"{kind.name.capitalize()} uncertainty of {row.label}, {result.title}",
        f"{kind.name} uncertainty, nats",
        "share",
        row.label,
    )
    words = f"AUROC {told}" if told else ""
    return densities(labels, found, look, words, end=end, root=kind.root)


def _is_random(row: Row) -> bool:
    """False for a model whose epistemic part is nothing."""
    return any(
        split.figures.get("auroc_epistemic") is not None or split.figures.get("epistemic", 0) > 0
        for split in foreign(row)
    )


def named(split: Split) -> str:
    """A split for readers."""
    return split.name.removeprefix("ood/")
