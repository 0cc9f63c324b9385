"""A plane with heights as colours, contours between them, and named places (iBNN's Fig. 2)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from leanbayes.reporting.axes import Axis, drawable, marked
from leanbayes.reporting.canvas import Chart, frame, short, spot
from leanbayes.reporting.charts.contours import contour
from leanbayes.reporting.charts.scatter import Box, touch
from leanbayes.reporting.charts.words import Labels
from leanbayes.reporting.markup import Html, joined, tag

WIDTH, HEIGHT = 460, 380
LEFT, RIGHT, TOP, BOTTOM = 62, 84, 14, 48
SHADES = 12  # h0 to h11 of the style
WIDE = 20.0  # from the smallest height to the largest: beyond, the scale is logarithmic

MARKED = (0.0, 0.25, 0.5, 0.75, 1.0)  # shares of the scale with a number
BOLD = 8.4  # width of a bold letter
FINE = 120  # cells of a side, about

Place = tuple[str, float, float]


@dataclass(frozen=True)
class Plane:
    """Heights `z[row][column]` at `y[row]`, `x[column]`; None where there is none."""

    x: Sequence[float]
    y: Sequence[float]
    z: Sequence[Sequence[float | None]]

    @property
    def heights(self) -> list[float]:
        """Those that can be drawn."""
        return [v for row in self.z for v in row if v is not None and drawable(v)]


@dataclass(frozen=True)
class Shades:
    """From heights to shades."""

    low: float
    high: float
    log: bool

    @staticmethod
    def of(heights: Sequence[float]) -> Shades:
        """Equal steps, or equal factors where heights differ much."""
        low, high = min(heights), max(heights)
        if not high > low:  # flat: one shade in the middle of what is around it
            room = abs(low) / 2 or 0.5
            return Shades(low - room, low + room, log=False)
        return Shades(low, high, low > 0 and high / low > WIDE)

    def level(self, share: float) -> float:
        """The height at a share of the scale."""
        if self.log:
            return math.exp(math.log(self.low) * (1 - share) + math.log(self.high) * share)
        return self.low * (1 - share) + self.high * share

    @cached_property
    def bounds(self) -> list[float]:
        """Heights between shades."""
        return [self.level(at / SHADES) for at in range(1, SHADES)]

    def shade(self, height: float) -> int:
        """Of a height, from 0."""
        return bisect_left(self.bounds, height)


def heat(labels: Labels, plane: Plane, places: Sequence[Place], unit: str) -> Chart | None:
    """Cells in the colours of their heights, with contours and a scale beside them."""
    if not plane.heights or len(plane.x) < 2 or len(plane.y) < 2:
        return None
    shades, plane = Shades.of(plane.heights), fine(plane)
    x = Axis(*_ends(plane.x), LEFT, WIDTH - RIGHT)
    y = Axis(*_ends(plane.y), HEIGHT - BOTTOM, TOP)
    inside = joined(
        [
            frame(x, y, labels.x, labels.y),
            *_cells(plane, shades, x, y),
            *_contours(plane, shades, x, y),
            *_places(places, x, y),
            _scale(shades, unit),
        ]
    )
    named = "; ".join(f"{name} at {a:.3g}, {b:.3g}" for name, a, b in places)
    ends = f"{min(plane.heights):.4g} to {max(plane.heights):.4g}"
    about = f"{unit} from {ends} in the plane. {named}"
    return Chart(labels.name, labels.title, about, inside, WIDTH, HEIGHT, caption=labels.caption)


def fine(plane: Plane) -> Plane:
    """The plane on a finer grid, linear between neighbours, so that cells are not seen."""
    times = max(1, min(8, FINE // max(len(plane.x), len(plane.y))))
    rows = [between(row, times) for row in plane.z]
    columns = [between(column, times) for column in zip(*rows, strict=True)]
    heights = list(zip(*columns, strict=True))
    return Plane(_spread(plane.x, times), _spread(plane.y, times), heights)


def between(values: Sequence[float | None], times: int) -> list[float | None]:
    """Values with others between them; a gap on one side is one all the way.

    Example:
        >>> between([0.0, 1.0, None], 2)
        [0.0, 0.5, 1.0, None, None]
    """
    found: list[float | None] = list(values[:1])
    for a, b in pairwise(values):
        if a is None or b is None:
            found += [None] * (times - 1)
        else:
            found += [a + (b - a) * at / times for at in range(1, times)]
        found.append(b)
    return found


def _spread(values: Sequence[float], times: int) -> list[float]:
    return [value for value in between(values, times) if value is not None]


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Half a cell beyond the first and the last."""
    low, high = min(values), max(values)
    half = (high - low) / (len(values) - 1) / 2 or 0.5
    return low - half, high + half


def _cells(plane: Plane, shades: Shades, x: Axis, y: Axis) -> list[Html]:
    """A path a shade: boxes of neighbours in a row are one."""
    wide = abs(x.end - x.start) / len(plane.x)
    high = abs(y.start - y.end) / len(plane.y)
    paths: dict[int, list[str]] = {}
    for row, values in zip(plane.y, plane.z, strict=True):
        up = y.place(row) - high / 2 - 0.1
        for shade, first, last in _runs(values, shades):
            left = x.place(plane.x[first]) - wide / 2
            box = f"M{spot(left)} {spot(up)}h{spot((last - first + 1) * wide + 0.2)}"
            paths.setdefault(shade, []).append(f"{box}v{spot(high + 0.2)}H{spot(left)}z")
    return [tag("path", d="".join(d), class_=f"h{shade}") for shade, d in sorted(paths.items())]


def _runs(values: Sequence[float | None], shades: Shades) -> list[tuple[int, int, int]]:
    """Shade, first and last column."""
    found: list[tuple[int, int, int]] = []
    for at, value in enumerate(values):
        if value is None or not drawable(value):
            continue
        shade = shades.shade(value)
        if found and found[-1][0] == shade and found[-1][2] == at - 1:
            found[-1] = (shade, found[-1][1], at)
        else:
            found.append((shade, at, at))
    return found


def _contours(plane: Plane, shades: Shades, x: Axis, y: Axis) -> list[Html]:
    found = []
    for at in range(1, SHADES, 2):
        pieces = contour(plane.x, plane.y, plane.z, shades.level(at / SHADES))
        path = "".join(
            f"M{spot(x.place(a))} {spot(y.place(b))}L{spot(x.place(c))} {spot(y.place(d))}"
            for a, b, c, d in pieces
        )
        found += [tag("path", d=path, class_="contour")] if path else []
    return found


def _places(places: Sequence[Place], x: Axis, y: Axis) -> list[Html]:
    """A dot each; a name where it hides no other dot or name."""
    spots = [(x.place(a), y.place(b)) for _, a, b in places]
    taken: list[Box] = [(a - 5, b - 5, a + 5, b + 5) for a, b in spots]
    return [
        _place(name, spot_, x.end, taken) for (name, _, _), spot_ in zip(places, spots, strict=True)
    ]


def _place(name: str, at: tuple[float, float], end: float, taken: list[Box]) -> Html:
    across, up = at
    parts = [tag("title", name), tag("circle", cx=spot(across), cy=spot(up), r=5, class_="pin")]
    words = short(name, 24)
    wide = BOLD * len(words)
    for left, side in ((across + 9, "pinned"), (across - 9 - wide, "pinned end")):
        box = (left, up - 8, left + wide, up + 6)
        if left > LEFT and box[2] < end and not any(touch(box, other) for other in taken):
            taken.append(box)
            start = spot(left if side == "pinned" else left + wide)
            parts.append(tag("text", words, x=start, y=spot(up + 4), class_=side))
            break
    return tag("g", *parts)


def told(levels: Sequence[float]) -> list[str]:
    """Levels with as many digits as tell them apart.

    Example:
        >>> told([0.1, 1.25]), told([2.3051, 2.3052])
        (['0.1', '1.25'], ['2.3051', '2.3052'])
    """
    found = ([marked(float(f"{v:.{digits}g}")) for v in levels] for digits in range(3, 7))
    return next(
        (words for words in found if len(set(words)) == len(words)), list(map(marked, levels))
    )


def _scale(shades: Shades, unit: str) -> Html:
    left, step = WIDTH - RIGHT + 16, (HEIGHT - BOTTOM - TOP) / SHADES
    parts = [
        tag("rect", x=left, y=spot(HEIGHT - BOTTOM - (at + 1) * step), width=14,
            height=spot(step + 0.2), class_=f"h{at}")
        for at in range(SHADES)
    ]  # fmt: skip
    for share, words in zip(MARKED, told([shades.level(at) for at in MARKED]), strict=True):
        up = HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP) + 4
        parts.append(tag("text", words, x=left + 18, y=spot(up), class_="small"))
    parts.append(tag("text", unit, x=left, y=HEIGHT - BOTTOM + 20, class_="label"))
    return joined(parts)
