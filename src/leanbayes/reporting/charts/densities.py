"""Histograms over each other: shares of rows by uncertainty, known data against foreign ones."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from leanbayes.reporting.axes import Axis
from leanbayes.reporting.canvas import Chart, below, spot
from leanbayes.reporting.charts.words import Labels
from leanbayes.reporting.looks import Look, plain
from leanbayes.reporting.markup import Html, joined, tag

WIDTH, HEIGHT = 230, 190
LEFT, RIGHT, TOP, DOWN = 38, 8, 8, 146
SHARES = (0.01, 0.05, 0.2, 0.5, 1.0)  # marks up
BINS = 30  # at most


@dataclass(frozen=True)
class Density:
    """Counts between edges, of which there is one more."""

    label: str
    edges: Sequence[float]
    counts: Sequence[float]

    @property
    def shares(self) -> list[float]:
        """Of all counts."""
        every = sum(self.counts)
        return [count / every if every else 0.0 for count in self.counts]

    @property
    def mean(self) -> float:
        """Of the middles of the bins."""
        middles = [(a + b) / 2 for a, b in pairwise(self.edges)]
        return sum(share * at for share, at in zip(self.shares, middles, strict=True))

    def reach(self, share: float) -> float:
        """The first edge with this share of the counts below it.

        Example:
            >>> Density("a", [0, 1, 2, 3], [90, 9, 1]).reach(0.99)
            2
        """
        needed = share * sum(self.counts)
        below = accumulate(self.counts, initial=0.0)
        return next(e for e, n in zip(self.edges, below, strict=True) if n >= needed)

    def drawn(self, end: float) -> Density:
        """At most 30 bins up to the end, each some of these; the last takes what is beyond it.

        Example:
            >>> Density("a", [0, 1, 2, 3], [90, 9, 1]).drawn(2).counts
            [90, 10]
        """
        bins = min(max(1, bisect_left(self.edges, end)), len(self.counts))
        step = math.ceil(bins / BINS)
        starts = range(0, max(1, bins - step // 2), step)  # no sliver at the end
        ends = [*starts[1:], len(self.counts)]
        counts = [sum(self.counts[a:b]) for a, b in zip(starts, ends, strict=True)]
        edges = [*(self.edges[at] for at in starts), self.edges[bins]]
        return replace(self, edges=edges, counts=counts)


def densities(
    labels: Labels,
    found: Sequence[Density],
    look: Look,
    words: str,
    *,
    end: float,
    root: bool = False,
) -> Chart | None:
    """Areas of shares on a square-root scale, so that rare and common values are both seen.

    Args:
        labels: Words.
        found: The known data first.
        look: Of the method.
        words: In a corner: how well they are told apart.
        end: Of the axis across, which begins at 0.
        root: A square-root scale across too.
    """
    if end <= 0 or not any(sum(one.counts) for one in found):
        return None
    bins = [one.drawn(end) for one in found]
    top = max(share for one in bins for share in one.shares)
    x = Axis(0, end, LEFT, WIDTH - RIGHT, root=root)
    y = Axis(0, math.sqrt(top) * 1.04, DOWN, TOP)
    keys = plain([one.label for one in found])
    areas = [_area(one, key, x, y) for one, key in zip(bins, keys, strict=True)]
    corner = tag("text", words, x=WIDTH - RIGHT - 4, y=TOP + 12, class_="end strong")
    inside = joined([_grid(x, y, top), *areas, corner, below(x, DOWN, labels.x)])
    told = "; ".join(f"{one.label}: mean {one.mean:.3g}" for one in found)
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


def _area(one: Density, key: Look, x: Axis, y: Axis) -> Html:
    """Stairs with a line above them; a coarse bin may reach beyond the end of the axis."""
    edges = [min(edge, x.high) for edge in one.edges]
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
