"""A row a label: bars from zero, or dots with errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from leanbayes.reporting.axes import Axis, drawable, together
from leanbayes.reporting.canvas import (
    BOTTOM,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    below,
    short,
    spot,
)
from leanbayes.reporting.charts.words import Labels
from leanbayes.reporting.markup import Html, joined, tag
from leanbayes.reporting.words import figure

ROW, WIDE = 20.0, 8.6  # height of a row, width of a bold letter
Value = tuple[str, float | None, float | None]
EVERYWHERE = (-math.inf, math.inf)


def bars(
    labels: Labels,
    values: Sequence[Value],
    *,
    zero: bool = True,
    reference: str = "",
    best: Sequence[str] = (),
) -> Chart | None:
    """A bar from 0 with its error, or a dot where 0 says nothing.

    An arrow and the number stand for a dot that is too far from all others.

    Args:
        labels: Words.
        values: Name, number and error.
        zero: Bars from there.
        reference: The row whose value is a line through all of them.
        best: Rows that stand out.
    """
    found = [(n, v, e) for n, v, e in values if v is not None and drawable(v)]
    if not found:
        return None
    left = min(220.0, 22 + WIDE * max(len(name) for name, _, _ in found))
    height = TOP + ROW * len(found) + BOTTOM
    least, most = (None if zero else together(v for _, v, _ in found)) or EVERYWHERE
    near = [(v, e or 0.0) for _, v, e in found if least <= v <= most]
    ends = [v + sign * e for v, e in near for sign in (-1, 1)]
    x = Axis.of(ends, left, WIDTH - RIGHT, zero=zero)
    y = Axis(0, len(found), TOP, height - BOTTOM)
    rows = [_row(at, row, x, y, zero, row[0] in best) for at, row in enumerate(found)]
    line = [_through(x, y, v) for name, v, _ in found if name == reference and _has(x, v)]
    about = f"{labels.x}. {'; '.join(f'{n}: {figure(v, e)}' for n, v, e in found)}"
    inside = joined([below(x, height - BOTTOM, labels.x), *line[:1], *rows])
    return Chart(labels.name, labels.title, about, inside, height=height, caption=labels.caption)


def _row(
    at: int, row: tuple[str, float, float | None], x: Axis, y: Axis, zero: bool, is_best: bool
) -> Html:
    name, value, error = row
    middle, end = y.place(at + 0.5), x.place(value)
    words = short(name, int((x.start - 14) / WIDE))
    parts = [tag("title", f"{name}: {figure(value, error)}")]
    bold = "end strong" if is_best else "end"
    parts.append(tag("text", words, x=spot(x.start - 8), y=spot(middle + 4), class_=bold))
    across = spot(middle)
    ends = {"x1": spot(x.start), "x2": spot(x.end), "y1": across, "y2": across}
    parts.append(tag("line", **ends, class_="grid"))
    if not _has(x, value):
        return tag("g", *parts, _arrow(x, value, middle), class_="c0")
    if zero:
        start, stop = sorted((x.place(0.0), end))
        box = {"x": spot(start), "y": spot(middle - 6), "width": spot(stop - start), "height": 12}
        parts.append(tag("rect", **box, class_="bar"))
    if error:
        places = [spot(x.place(value + sign * error)) for sign in (-1, 1)]
        parts.append(tag("line", x1=places[0], x2=places[1], y1=across, y2=across, class_="error"))
    if not zero:
        parts.append(tag("circle", cx=spot(end), cy=across, r=4.5, class_="dot"))
    return tag("g", *parts, class_="c1" if is_best else "c0")


def _has(x: Axis, value: float) -> bool:
    return x.low <= value <= x.high


def _arrow(x: Axis, value: float, middle: float) -> Html:
    words, down = figure(value, None), spot(middle + 4)
    if value > x.high:
        return tag("text", f"{words} →", x=spot(x.end), y=down, class_="end name")
    return tag("text", f"← {words}", x=spot(x.start), y=down, class_="name")


def _through(x: Axis, y: Axis, value: float) -> Html:
    at = spot(x.place(value))
    return tag("line", x1=at, x2=at, y1=spot(y.start), y2=spot(y.end), class_="diagonal")
