"""Lines with bands, bars or dots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from leanbayes.reporting.axes import Axis, drawable, marked, together
from leanbayes.reporting.canvas import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, frame, spot
from leanbayes.reporting.charts.words import Labels, Series, beyond
from leanbayes.reporting.looks import Look, key, plain
from leanbayes.reporting.markup import NOTHING, Html, joined, tag

APART = 3.0  # between the bars of two methods at one place


@dataclass(frozen=True)
class Drawn:
    """How lines are drawn.

    Attributes:
        log: Equal factors across are equally far.
        dots: At every point, not at those alone.
        bars: From low to high at every point, in place of a band.
        diagonal: The line on which both are equal.
        ends: Of the axis up; those of the numbers where it is None.
        percent: Marks up are shares.
    """

    log: bool = False
    dots: bool = False
    bars: bool = False
    diagonal: bool = False
    ends: tuple[float, float] | None = None
    percent: bool = False


PLAIN = Drawn()


def lines(labels: Labels, series: Sequence[Series], how: Drawn = PLAIN) -> Chart | None:
    """Lines with bands and dots; gaps where a number is missing.

    Lines too far from all others are named in the caption.
    """
    far = [] if how.ends else _far(series)
    labels = beyond(labels, [(s.label, _last(s)) for s in far])
    series = [s for s in series if s not in far]
    every_x = [v for s in series for v in (*s.x, *(d[0] for d in s.dots)) if v is not None]
    every_y = [v for s in series for v in heights(s)]
    if not any(map(drawable, every_x)) or not any(map(drawable, every_y)):
        return None
    x = Axis.of(every_x, LEFT, WIDTH - RIGHT, log=how.log).at(every_x)
    y = Axis.of([*every_y, *(how.ends or ())], HEIGHT - BOTTOM, TOP)
    found = _looks(series)
    pairs = sorted(zip(series, found, strict=True), key=lambda pair: pair[1].on)
    count = sum(look.on for look in found)
    drawn = [_line(s, look, (x, y), how, _shift(look, count)) for s, look in pairs]
    about = f"{labels.y} against {labels.x}. {'; '.join(map(_ends, series))}"
    own = all(s.look is None for s in series) and len(series) > 1
    shapes = [_diagonal(x, y)] if how.diagonal else []
    inside = joined([frame(x, y, labels.x, labels.y, percent=how.percent), *shapes, *drawn])
    return Chart(
        labels.name,
        labels.title,
        about,
        inside,
        keys=found if len(series) > 1 else (),
        legend=legend(found) if own else NOTHING,
        caption=labels.caption,
    )


def _far(series: Sequence[Series]) -> list[Series]:
    """Lines that lie and end where none of nearly all others has a place.

    A line counts once, by its middle: all of its points together may be spread as widely as it is
    far from the others. One that only begins there is drawn: it shows how it comes near.
    """
    known = [(s, [v for v in s.y if v is not None]) for s in series]
    known = [(s, ys) for s, ys in known if any(map(drawable, ys))]
    ends = together(median(ys) for _, ys in known)
    if ends is None:
        return []
    near = [v for _, ys in known if ends[0] <= median(ys) <= ends[1] for v in ys]
    least, most = min(near), max(near)
    return [
        s for s, ys in known if max(median(ys), ys[-1]) < least or min(median(ys), ys[-1]) > most
    ]


def _last(series: Series) -> float:
    return [value for value in series.y if value is not None][-1]


def heights(series: Series) -> list[float]:
    """All places up."""
    every = (*series.y, *series.low, *series.high, *(dot[1] for dot in series.dots))
    return [value for value in every if value is not None]


def legend(found: Sequence[Look]) -> Html:
    """Names of lines."""
    return tag("ul", *(tag("li", key(look), look.label) for look in found), class_="legend")


def _looks(series: Sequence[Series]) -> list[Look]:
    own = plain([s.label for s in series])
    return [s.look or look for s, look in zip(series, own, strict=True)]


def _shift(look: Look, count: int) -> float:
    """Bars of methods stand beside each other."""
    return (look.at - (count - 1) / 2) * APART if look.at < count else 0.0


def _line(series: Series, look: Look, axes: tuple[Axis, Axis], how: Drawn, shift: float) -> Html:
    x, y = axes
    parts = [tag("title", series.label)]
    if series.low and series.high:
        parts += [_bars(series, x, y, shift)] if how.bars else [_band(series, x, y)]
    runs = _runs(series.x, series.y, x, y)
    path = " ".join(f"M{' L'.join(run)}" for run in runs if run)
    parts.append(tag("path", d=path, class_=f"line {look.dash}"))
    single = [place for run in runs for place in run if how.dots or len(run) == 1]
    parts += [_dot(place, 2.6) for place in single]
    parts += [_dot(f"{spot(x.place(a))} {spot(y.place(b))}", 2.0) for a, b in series.dots]
    return tag("g", *parts, class_=look.classes, data_m=look.key or None)


def _dot(place: str, size: float) -> Html:
    across, down = place.split()
    return tag("circle", cx=across, cy=down, r=size, class_="dot")


def _bars(series: Series, x: Axis, y: Axis, shift: float) -> Html:
    """From low to high at every point, a little aside so that none hides another."""
    parts = []
    for a, low, high in zip(series.x, series.low, series.high, strict=True):
        if a is not None and low is not None and high is not None and low != high:
            at, ends = spot(x.place(a) + shift), (spot(y.place(low)), spot(y.place(high)))
            parts.append(f"M{at} {ends[0]} V{ends[1]}")
    return tag("path", d=" ".join(parts), class_="error") if parts else NOTHING


def _runs(
    xs: Sequence[float | None], ys: Sequence[float | None], x: Axis, y: Axis
) -> list[list[str]]:
    """Places one after another, a list for each stretch without gaps."""
    runs: list[list[str]] = [[]]
    for a, b in zip(xs, ys, strict=True):
        if a is not None and b is not None and x.holds(a) and y.holds(b):
            runs[-1].append(f"{spot(x.place(a))} {spot(y.place(b))}")
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _band(series: Series, x: Axis, y: Axis) -> Html:
    above = [p for run in _runs(series.x, series.high, x, y) for p in run]
    under = [p for run in _runs(series.x, series.low, x, y) for p in run]
    places = [*above, *reversed(under)]
    return tag("path", d=f"M{' L'.join(places)} Z" if places else "", class_="band")


def _diagonal(x: Axis, y: Axis) -> Html:
    ends = max(x.low, y.low), min(x.high, y.high)
    (a, b), (c, d) = ((spot(x.place(v)), spot(y.place(v))) for v in ends)
    return tag("line", x1=a, y1=b, x2=c, y2=d, class_="diagonal")


def _ends(series: Series) -> str:
    found = [
        (a, b) for a, b in zip(series.x, series.y, strict=True) if a is not None and b is not None
    ]
    if not found:
        return f"{series.label}: nothing"
    (a, b), (c, d) = found[0], found[-1]
    return f"{series.label}: from {b:.4g} at {marked(a)} to {d:.4g} at {marked(c)}"
