"""A row a layer: how much of it is random, and how far its parameters spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leanbayes.reporting.axes import Axis, drawable
from leanbayes.reporting.canvas import LETTER, Chart, below, short, spot
from leanbayes.reporting.charts.words import Labels
from leanbayes.reporting.looks import Look
from leanbayes.reporting.markup import NOTHING, Html, joined, tag

WIDTH, TOP, BOTTOM = 420, 24, 44
LARGEST, LEAST = 20.0, 7.0  # height of a row
READABLE = 11.0  # rows lower than that are not all named
SHARE = 90.0  # width of the bars of shares


@dataclass(frozen=True)
class Layer:
    """A layer; the spread is None where nothing in it is random."""

    name: str
    share: float
    spread: tuple[float, float, float] | None
    words: str


def layers(labels: Labels, found: Sequence[Layer], look: Look) -> Chart | None:
    """Shares as bars from 0 to 100 %, standard deviations as ranges with their median."""
    if not found:
        return None
    row = max(LEAST, min(LARGEST, 560 / len(found)))
    height = TOP + row * len(found) + BOTTOM
    left = min(150.0, 16 + LETTER * max(len(layer.name) for layer in found))
    shares = Axis(0, 1, left, left + SHARE)
    spread = [v for layer in found if layer.spread for v in layer.spread if drawable(v) and v > 0]
    x = Axis.of(spread, left + SHARE + 34, WIDTH - 14, log=True)
    rows = [_row(at, layer, row, (shares, x), len(found)) for at, layer in enumerate(found)]
    heads = [_head((shares.start + shares.end) / 2, "random")]
    if spread:
        heads.append(_head((x.start + x.end) / 2, "standard deviation"))
        heads.append(below(x, height - BOTTOM, ""))
    inside = joined([*heads, _shares(shares, height - BOTTOM), tag("g", *rows, class_=look.colour)])
    about = "; ".join(f"{layer.name}: {layer.words}" for layer in found)
    return Chart(
        labels.name, labels.title, about, inside, WIDTH, height, look=look, caption=labels.caption
    )


def _head(x: float, words: str) -> Html:
    return tag("text", words, x=spot(x), y=14, class_="middle label")


def _shares(x: Axis, down: float) -> Html:
    ends = ((0.0, "0"), (0.5, "50%"), (1.0, "100%"))
    return joined(
        tag("text", words, x=spot(x.place(at)), y=spot(down + 17), class_="middle small")
        for at, words in ends
    )


def _row(at: int, layer: Layer, row: float, axes: tuple[Axis, Axis], count: int) -> Html:
    shares, x = axes
    middle = TOP + (at + 0.5) * row
    thick = min(row - 2, 11.0)
    parts = [tag("title", f"{layer.name}: {layer.words}")]
    every = max(1, -(-READABLE // row))  # each so many rows are named
    if at % every == 0 or count == 1:
        words = short(layer.name, int((shares.start - 10) / LETTER))
        parts.append(tag("text", words, x=spot(shares.start - 6), y=spot(middle + 4), class_="end"))
    box = {"x": spot(shares.start), "y": spot(middle - thick / 2), "height": spot(thick)}
    parts.append(tag("rect", **box, width=SHARE, class_="trough"))
    wide = spot(SHARE * min(max(layer.share, 0.0), 1.0))
    parts.append(tag("rect", **box, width=wide, class_="bar"))
    parts.append(_range(layer, middle, thick, x))
    return tag("g", *parts)


def _range(layer: Layer, middle: float, thick: float, x: Axis) -> Html:
    if layer.spread is None or not all(x.holds(v) for v in layer.spread):
        return NOTHING
    low, median, high = (spot(x.place(v)) for v in layer.spread)
    up = spot(middle)
    line = tag("line", x1=low, x2=high, y1=up, y2=up, class_="range")
    return joined([line, tag("circle", cx=median, cy=up, r=spot(thick / 2.6), class_="dot")])
