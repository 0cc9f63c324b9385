"""The picture that charts share: frame, axes, words, colours, and SVG of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass

from leanbayes.reporting.axes import Axis, marked
from leanbayes.reporting.markup import NOTHING, Html, joined, tag
from leanbayes.reporting.style import CHART_STYLE

WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 14, 48
COLOURS = 8  # c0 to c7 of the style, of Okabe and Ito: they differ for colour-blind people too
LETTER = 7.7  # width of a letter, about


@dataclass(frozen=True)
class Chart:
    """A finished chart.

    Attributes:
        name: For a file.
        title: What it shows.
        description: The same for those who cannot see it.
        inside: Markup of the picture.
        width: Of the picture.
        height: Of the picture.
        legend: Markup beside the picture.
    """

    name: str
    title: str
    description: str
    inside: Html
    width: float = WIDTH
    height: float = HEIGHT
    legend: Html = NOTHING

    def figure(self) -> Html:
        """For a page."""
        caption = tag("figcaption", self.title)
        return tag("figure", self._svg(NOTHING), caption, self.legend, class_="chart")

    def file(self) -> str:
        """A file of its own, with its colours."""
        words = tag("text", self.title, x=self.width / 2, y=self.height + 18, class_="caption")
        style = tag("style", Html(CHART_STYLE))
        picture = self._svg(joined([style, words]), extra=28, xmlns="http://www.w3.org/2000/svg")
        return f"{picture}\n"

    def _svg(self, before: Html, extra: float = 0, **more: str) -> Html:
        return tag(
            "svg",
            tag("title", self.title),
            tag("desc", self.description),
            before,
            self.inside,
            viewBox=f"0 0 {self.width:g} {self.height + extra:g}",
            role="img",
            class_="plot",
            **more,
        )


def slug(words: str) -> str:
    """A name for files and anchors.

    Example:
        >>> slug("ibnn: map, 1 layer")
        'ibnn-map-1-layer'
    """
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:80] or "chart"


def frame(x: Axis, y: Axis, x_label: str, y_label: str) -> Html:
    """Grid, marks and labels of both axes."""
    down, up = y.start, y.end
    parts: list[Html] = []
    for value in y.marks():
        at = spot(y.place(value))
        parts.append(tag("line", x1=spot(x.start), x2=spot(x.end), y1=at, y2=at, class_="grid"))
        parts.append(tag("text", marked(value), x=x.start - 6, y=float(at) + 4, class_="end"))
    for value in _sparse(x):
        at = spot(x.place(value))
        parts.append(tag("line", x1=at, x2=at, y1=spot(down), y2=spot(up), class_="grid"))
        parts.append(tag("text", marked(value), x=at, y=down + 18, class_="middle"))
    middle = (x.start + x.end) / 2
    parts.append(tag("text", x_label, x=spot(middle), y=spot(down + 39), class_="middle label"))
    turn = f"rotate(-90 14 {(down + up) / 2:.1f})"
    height = spot((down + up) / 2)
    parts.append(tag("text", y_label, x=14, y=height, transform=turn, class_="middle label"))
    return joined(parts)


def _sparse(x: Axis) -> list[float]:
    """Marks whose words do not touch."""
    kept: list[float] = []
    end = -1e9
    for value in x.marks():
        half = len(marked(value)) * LETTER / 2 + 4
        if x.place(value) - half > end:
            kept.append(value)
            end = x.place(value) + half
    return kept


def spot(value: float) -> str:
    """A place, to a tenth."""
    return f"{value:.1f}"
