"""The picture that charts share: frame, axes, words, colours, and SVG of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leanbayes.reporting.axes import Axis, marked
from leanbayes.reporting.markup import NOTHING, Html, joined, tag
from leanbayes.reporting.style import CHART_STYLE

if TYPE_CHECKING:
    from leanbayes.reporting.looks import Look

WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 14, 48
LETTER = 7.2  # width of a letter, about
LINE = 18  # height of a line of words below a picture


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
        keys: What its lines are; in a file of its own below the picture.
        legend: Markup beside the picture, on a page.
        look: Of the one method that it is about.
        caption: Shorter than the title, where the words around it say the rest.
    """

    name: str
    title: str
    description: str
    inside: Html
    width: float = WIDTH
    height: float = HEIGHT
    keys: Sequence[Look] = ()
    legend: Html = NOTHING
    look: Look | None = None
    caption: str = ""

    def figure(self) -> Html:
        """For a page."""
        caption = tag("figcaption", tag("bdi", self.caption or self.title))
        look = self.look
        off = " off" if look is not None and not look.on else ""
        switch = {} if look is None or not look.key else {"data_m": look.key}
        return tag(
            "figure", caption, self._svg(NOTHING), self.legend, class_=f"chart{off}", **switch
        )

    def file(self) -> str:
        """A file of its own: light colours, its title and the names of its lines below it."""
        below, extra = self._below()
        style = tag("style", Html(CHART_STYLE))
        ground = tag("rect", width="100%", height="100%", class_="ground")
        picture = self._svg(
            joined([style, ground, below]), extra=extra, xmlns="http://www.w3.org/2000/svg"
        )
        return f"{picture}\n"

    def _below(self) -> tuple[Html, float]:
        """Names of lines in rows, then the title, broken where it is long."""
        parts: list[Html] = []
        x, y = 12.0, self.height + 12.0
        for look in sorted((k for k in self.keys if k.on), key=lambda k: k.at):
            wide = 34 + LETTER * len(look.label[:60])
            if x > 12 and x + wide > self.width:
                x, y = 12.0, y + LINE
            line = tag("path", d=f"M{x:g} {y - 4:g} h22", class_=f"line {look.dash}")
            words = tag("text", look.label[:60], x=x + 27, y=y)
            parts.append(tag("g", line, words, class_=look.colour))
            x += wide + 6
        y += LINE if parts else 0
        for row in broken(self.title, int((self.width - 16) / LETTER)):
            parts.append(tag("text", row, x=self.width / 2, y=y, class_="caption"))
            y += LINE
        return joined(parts), y - self.height - 6

    def _svg(self, before: Html, extra: float = 0, **more: str) -> Html:
        return tag(
            "svg",
            tag("title", self.title),
            tag("desc", self.description),
            before,
            self.inside,
            viewBox=f"0 0 {self.width:g} {self.height + extra:g}",
            role="img",
            aria_label=self.title,
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


def broken(words: str, most: int) -> list[str]:
    """Lines of at most so many letters, three of them at most.

    Example:
        >>> broken("one two three", 8)
        ['one two', 'three']
    """
    from textwrap import wrap

    return wrap(words, max(most, 8), max_lines=3, placeholder="…") or [""]


def short(words: str, most: int) -> str:
    """Words cut to a width.

    Example:
        >>> short("a_long_name", 6), short("short", 6)
        ('a_lon…', 'short')
    """
    return words if len(words) <= most else f"{words[: max(most - 1, 0)]}…"


def frame(x: Axis, y: Axis, x_label: str, y_label: str, *, percent: bool = False) -> Html:
    """Grid, marks and labels of both axes; no more marks across than have room."""
    down, up = y.start, y.end
    parts: list[Html] = []
    for value in y.marks():
        at = spot(y.place(value))
        words = f"{value * 100:g}%" if percent else marked(value)
        parts.append(tag("line", x1=spot(x.start), x2=spot(x.end), y1=at, y2=at, class_="grid"))
        parts.append(tag("text", words, x=x.start - 6, y=spot(float(at) + 4), class_="end"))
    parts.append(below(x, down, x_label))
    turn = f"rotate(-90 14 {(down + up) / 2:.1f})"
    height = spot((down + up) / 2)
    if y_label:
        parts.append(tag("text", y_label, x=14, y=height, transform=turn, class_="middle label"))
    return joined(parts)


def below(x: Axis, down: float, label: str) -> Html:
    """The axis across: a line, ticks, numbers and words."""
    ends = {"x1": spot(x.start), "x2": spot(x.end), "y1": spot(down), "y2": spot(down)}
    parts = [tag("line", **ends, class_="axis")]
    for value in _sparse(x):
        at = spot(x.place(value))
        parts.append(tag("line", x1=at, x2=at, y1=spot(down), y2=spot(down + 4), class_="axis"))
        parts.append(tag("text", marked(value), x=at, y=spot(down + 17), class_="middle"))
    if label:
        middle = spot((x.start + x.end) / 2)
        parts.append(tag("text", label, x=middle, y=spot(down + 36), class_="middle label"))
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
    """A place, to a tenth, without a needless zero.

    Example:
        >>> spot(3.04), spot(-0.04), spot(2.55)
        ('3', '0', '2.5')
    """
    words = f"{value:.1f}".removesuffix(".0")
    return "0" if words == "-0" else words
