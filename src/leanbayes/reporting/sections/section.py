"""What a section of a report is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leanbayes.reporting.canvas import Chart, slug
from leanbayes.reporting.looks import chooser
from leanbayes.reporting.markup import NOTHING, Html, joined, tag
from leanbayes.reporting.results import Result, Row

ALONE = ("landscape", "trajectory")  # files with a section of their own


@dataclass(frozen=True)
class Section:
    """A title, what is under it, and the charts in it, for files of their own."""

    title: str
    body: Html
    charts: Sequence[Chart] = ()

    @property
    def anchor(self) -> str:
        """For links to it."""
        return slug(self.title)


@dataclass(frozen=True)
class Block:
    """What a section says of one result.

    Attributes:
        charts: In the open.
        shape: How they are laid out: "charts", or "panels" for many small ones.
        labels: Of methods that a reader may choose.
        before: Words above.
        groups: Further charts, each group under a heading.
        after: Words below.
        folded: Further charts, seen on demand.
    """

    charts: Sequence[Chart] = ()
    shape: str = "charts"
    labels: Sequence[str] = ()
    before: Html = NOTHING
    groups: Sequence[tuple[str, Sequence[Chart]]] = ()
    after: Html = NOTHING
    folded: Sequence[Chart] = ()

    @property
    def every(self) -> list[Chart]:
        """All charts."""
        return [*self.charts, *(c for _, group in self.groups for c in group), *self.folded]

    def html(self, result: Result, *, headed: bool = True) -> Html:
        """A heading, the chooser where methods can be chosen, the charts."""
        head = tag("h3", tag("bdi", result.title)) if headed else NOTHING
        choose = chooser(result, self.labels) if self.labels else NOTHING
        shown = gallery(self.charts, self.shape) if self.charts else NOTHING
        groups = [
            joined([tag("h4", words), gallery(charts, self.shape)]) for words, charts in self.groups
        ]
        return joined([head, self.before, choose, shown, *groups, self.after, self._folded()])

    def _folded(self) -> Html:
        if not self.folded:
            return NOTHING
        words = f"{len(self.folded)} more method{'' if len(self.folded) == 1 else 's'}"
        return tag("details", tag("summary", words), gallery(self.folded, "charts"))


def gallery(charts: Sequence[Chart], shape: str = "charts") -> Html:
    """Charts side by side where there is room."""
    return tag("div", *(chart.figure() for chart in charts), class_=shape)


def blocks(
    title: str,
    intro: str,
    results: Sequence[Result],
    make: Callable[[Result], Block | None],
) -> Section | None:
    """A section with a block of every result that has something to say; None where none has."""
    made = [(result, make(result)) for result in results]
    found = [(result, block) for result, block in made if block is not None]
    if not found:
        return None
    headed = several(results)
    parts = [block.html(result, headed=headed) for result, block in found]
    charts = [chart for _, block in found for chart in block.every]
    return Section(title, joined([tag("p", intro, class_="soft"), *parts]), charts)


def several(results: Sequence[Result]) -> bool:
    """True where a reader has to be told which result charts are about."""
    return len([result for result in results if result.kind not in ALONE]) > 1


def evaluated(result: Result) -> list[Row]:
    """Methods with an evaluation of a suite."""
    return [row for row in result.rows if row.evaluations and not row.failed]


def drawn(charts: Sequence[Chart | None]) -> list[Chart]:
    """Charts that have something to show."""
    return [chart for chart in charts if chart is not None]
