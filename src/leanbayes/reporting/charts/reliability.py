"""A reliability diagram with the histogram of the confidences below it, small enough for many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leanbayes.reporting.axes import Axis
from leanbayes.reporting.canvas import Chart, below, spot
from leanbayes.reporting.charts.words import Labels
from leanbayes.reporting.looks import Look
from leanbayes.reporting.markup import Html, joined, tag

WIDTH, HEIGHT = 230, 250
LEFT, RIGHT, TOP = 38, 8, 8
DOWN, FLOOR = 160, 206  # of the diagram, and of the histogram below it


@dataclass(frozen=True)
class Bins:
    """Mean confidence, share of right answers and rows of every bin; None where it is empty."""

    confidence: Sequence[float | None]
    accuracy: Sequence[float | None]
    count: Sequence[float | None]

    def filled(self) -> list[tuple[int, float, float, float]]:
        """Place, confidence, accuracy and count of bins that hold something."""
        every = enumerate(zip(self.confidence, self.accuracy, self.count, strict=True))
        return [
            (at, c, a, n)
            for at, (c, a, n) in every
            if c is not None and a is not None and n is not None and n > 0
        ]


def reliability(labels: Labels, bins: Bins, look: Look, words: str) -> Chart | None:
    """Lines at the accuracy of every bin; the gap to its mean confidence stands out.

    Args:
        labels: Words.
        bins: Numbers.
        look: Of the method.
        words: In a corner: the calibration error.
    """
    found = bins.filled()
    if not found:
        return None
    x, y = Axis(0, 1, LEFT, WIDTH - RIGHT), Axis(0, 1, DOWN, TOP)
    step = 1 / len(bins.count)
    inside = joined(
        [
            _grid(x, y),
            tag("g", *_bars(found, step, x, y), class_=look.colour),
            tag("line", x1=LEFT, y1=DOWN, x2=WIDTH - RIGHT, y2=TOP, class_="diagonal"),
            tag("text", words, x=LEFT + 7, y=TOP + 14, class_="strong"),
            tag("g", _histogram(found, step, x), class_=look.colour),
            below(x, FLOOR, "confidence"),
        ]
    )
    about = "; ".join(f"at {c:.3f}: {a:.3f} of {n:g}" for _, c, a, n in found)
    about = f"{words}. Accuracy by confidence {about}"
    return Chart(
        labels.name, labels.title, about, inside, WIDTH, HEIGHT, look=look, caption=labels.caption
    )


def _grid(x: Axis, y: Axis) -> Html:
    parts = []
    for value in (0.0, 0.5, 1.0):
        at = spot(y.place(value))
        parts.append(tag("line", x1=spot(x.start), x2=spot(x.end), y1=at, y2=at, class_="grid"))
        words = f"{value:g}"
        parts.append(tag("text", words, x=x.start - 5, y=spot(float(at) + 4), class_="end"))
    turn = f"rotate(-90 11 {(DOWN + TOP) / 2})"
    middle = (DOWN + TOP) / 2
    parts.append(tag("text", "accuracy", x=11, y=middle, transform=turn, class_="middle label up"))
    return joined(parts)


def _bars(
    found: Sequence[tuple[int, float, float, float]], step: float, x: Axis, y: Axis
) -> list[Html]:
    bars, gaps, caps = [], [], []
    for at, confidence, accuracy, _ in found:
        left, right = x.place(at * step) + 0.5, x.place((at + 1) * step) - 0.5
        up = y.place(accuracy)
        bars.append(_box(left, right, y.place(0.0), y.place(min(accuracy, confidence))))
        gaps.append(_box(left, right, up, y.place(confidence)))
        caps.append(f"M{spot(left)} {spot(up)}H{spot(right)}")
    return [
        tag("path", d=" ".join(bars), class_="bar pale"),
        tag("path", d=" ".join(gaps), class_="gap"),
        tag("path", d=" ".join(caps), class_="cap"),
    ]


def _histogram(found: Sequence[tuple[int, float, float, float]], step: float, x: Axis) -> Html:
    most = max(count for *_, count in found)
    y = Axis(0, most, FLOOR, DOWN + 10)
    boxes = [
        _box(x.place(at * step) + 0.5, x.place((at + 1) * step) - 0.5, FLOOR, y.place(count))
        for at, _, _, count in found
    ]
    return tag("path", d=" ".join(boxes), class_="bar")


def _box(left: float, right: float, down: float, up: float) -> str:
    return f"M{spot(left)} {spot(down)} V{spot(up)} H{spot(right)} V{spot(down)}Z"
