"""Histograms over each other: shares of rows by uncertainty, known data against foreign ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from leanbayes.reporting.axes import Axis
from leanbayes.reporting.canvas import Chart, below, spot
from leanbayes.reporting.charts.words import Labels
from leanbayes.reporting.looks import Look, plain
from leanbayes.reporting.markup import Html, joined, tag

WIDTH, HEIGHT = 230, 190
LEFT, RIGHT, TOP, DOWN = 38, 8, 8, 146
SHARES = (0.01, 0.05, 0.2, 0.5, 1.0)  # marks up


@dataclass(frozen=True)
class Density:
    """Counts between edges."""

    label: str
    counts: Sequence[float]

    @property
    def shares(self) -> list[float]:
        """Of all counts."""
        every = sum(self.counts)
        return [count / every if every else 0.0 for count in self.counts]


def densities(
    labels: Labels, edges: Sequence[float], found: Sequence[Density], look: Look, words: str
) -> Chart | None:
    """Areas of shares on a square-root scale, so that rare and common values are both seen.

    Args:
        labels: Words.
        edges: One more than counts.
        found: The known data first.
        look: Of the method.
        words: In a corner: how well they are told apart.
    """
    if len(edges) < 2 or not any(sum(one.counts) for one in found):
        return None
    top = max(share for one in found for share in one.shares)
    x = Axis(edges[0], edges[-1], LEFT, WIDTH - RIGHT)
    y = Axis(0, math.sqrt(top) * 1.04, DOWN, TOP)
    keys = plain([one.label for one in found])
    areas = [_area(one, key, edges, x, y) for one, key in zip(found, keys, strict=True)]
    corner = tag("text", words, x=WIDTH - RIGHT - 4, y=TOP + 12, class_="end strong")
    inside = joined([_grid(x, y, top), *areas, corner, below(x, DOWN, labels.x)])
    told = "; ".join(f"{one.label}: mean {_mean(one, edges):.3f}" for one in found)
    about = f"{labels.x}. {told}. {words}"
    return Chart(
        labels.name,
        labels.title,
        about,
        inside,
        WIDTH,
        HEIGHT,
        keys=keys,
        look=look,
        caption=labels.caption,
    )


def _area(one: Density, key: Look, edges: Sequence[float], x: Axis, y: Axis) -> Html:
    """Stairs with a line above them."""
    steps = []
    for at, share in enumerate(one.shares):
        up = spot(y.place(math.sqrt(share)))
        steps.append(f"V{up} H{spot(x.place(edges[at + 1]))}")
    path = f"M{spot(x.place(edges[0]))} {DOWN} {' '.join(steps)} V{DOWN}"
    title = tag("title", one.label)
    return tag("g", title, tag("path", d=path, class_="area"), class_=key.colour)


def _grid(x: Axis, y: Axis, top: float) -> Html:
    parts = []
    for share in (0.0, *(s for s in SHARES if s <= top * 1.02)):
        at = y.place(math.sqrt(share))
        words, high = f"{share * 100:g}%", spot(at)
        parts.append(tag("line", x1=LEFT, x2=spot(x.end), y1=high, y2=high, class_="grid"))
        parts.append(tag("text", words, x=LEFT - 4, y=spot(at + 4), class_="end small"))
    return joined(parts)


def _mean(one: Density, edges: Sequence[float]) -> float:
    middles = [(a + b) / 2 for a, b in pairwise(edges)]
    return sum(share * at for share, at in zip(one.shares, middles, strict=False))
