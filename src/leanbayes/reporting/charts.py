"""Charts as SVG from plain numbers: scatter, lines and bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leanbayes.reporting.axes import Axis, drawable, marked
from leanbayes.reporting.canvas import (
    BOTTOM,
    COLOURS,
    HEIGHT,
    LEFT,
    LETTER,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    frame,
    spot,
)
from leanbayes.reporting.markup import NOTHING, Html, joined, tag
from leanbayes.reporting.words import figure

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Labels:
    """Words of a chart."""

    name: str
    title: str
    x: str
    y: str


@dataclass(frozen=True)
class Point:
    """A place with a name; errors are standard errors."""

    label: str
    x: float
    y: float
    y_error: float | None = None


@dataclass(frozen=True)
class Series:
    """A line; `low` and `high` bound a band around it, `dots` are single places."""

    label: str
    x: Sequence[float | None]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    dots: Sequence[tuple[float, float]] = ()


def scatter(labels: Labels, points: Sequence[Point], *, log: bool = False) -> Chart | None:
    """Named points with error bars; names that would lie on others are told by a touch alone."""
    found = [p for p in points if drawable(p.x) and drawable(p.y) and (p.x > 0 or not log)]
    if not found:
        return None
    ends = [p.y + sign * (p.y_error or 0.0) for p in found for sign in (-1, 1)]
    x = Axis.of([p.x for p in found], LEFT, WIDTH - RIGHT, log=log)
    y = Axis.of(ends, HEIGHT - BOTTOM, TOP)
    taken: list[Box] = [_around(x.place(p.x), y.place(p.y)) for p in found]
    marks = [_mark(at, p, x, y, taken) for at, p in enumerate(found)]
    words = "; ".join(f"{p.label}: {marked(p.x)}, {figure(p.y, p.y_error)}" for p in found)
    about = f"{labels.y} against {labels.x}. {words}"
    inside = joined([frame(x, y, labels.x, labels.y), *marks])
    return Chart(labels.name, labels.title, about, inside)


def _mark(at: int, point: Point, x: Axis, y: Axis, taken: list[Box]) -> Html:
    place, height = x.place(point.x), y.place(point.y)
    said = tag("title", f"{point.label}: {figure(point.y, point.y_error)} at {marked(point.x)}")
    parts = [said]
    if point.y_error:
        ends = [spot(y.place(point.y + sign * point.y_error)) for sign in (-1, 1)]
        across = spot(place)
        parts.append(tag("line", x1=across, x2=across, y1=ends[0], y2=ends[1], class_="error"))
    parts.append(tag("circle", cx=spot(place), cy=spot(height), r=4.5, class_="dot"))
    parts.append(_name(point.label, place, height, taken))
    return tag("g", *parts, class_=f"c{at % COLOURS}")


def _name(label: str, x: float, y: float, taken: list[Box]) -> Html:
    """A name at the first of some sides where nothing is yet."""
    wide = len(label) * LETTER
    sides = (
        (8.0, 4.0),
        (-wide - 8, 4.0),
        (-wide / 2, -9.0),
        (-wide / 2, 17.0),
        (7.0, -7.0),
        (7.0, 15.0),
    )
    for right, down in sides:
        box = (x + right, y + down - 10, x + right + wide, y + down + 2)
        inside = box[0] > LEFT and box[2] < WIDTH and box[1] > 0 and box[3] < HEIGHT - BOTTOM
        if inside and not any(_touch(box, other) for other in taken):
            taken.append(box)
            return tag("text", label, x=spot(x + right), y=spot(y + down), class_="name")
    return NOTHING


def _around(x: float, y: float) -> Box:
    return x - 5, y - 5, x + 5, y + 5


def _touch(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def lines(labels: Labels, series: Sequence[Series], *, log: bool = False) -> Chart | None:
    """Lines with bands and dots; gaps where a number is missing."""
    every_x = [v for s in series for v in (*s.x, *(d[0] for d in s.dots)) if v is not None]
    every_y = [
        v for s in series for v in (*s.y, *s.low, *s.high, *(d[1] for d in s.dots)) if v is not None
    ]
    if not any(map(drawable, every_x)) or not any(map(drawable, every_y)):
        return None
    x = Axis.of(every_x, LEFT, WIDTH - RIGHT, log=log)
    y = Axis.of(every_y, HEIGHT - BOTTOM, TOP)
    drawn = [_line(at, s, x, y) for at, s in enumerate(series)]
    about = f"{labels.y} against {labels.x}. {'; '.join(map(_ends, series))}"
    legend = _legend([s.label for s in series]) if len(series) > 1 else NOTHING
    inside = joined([frame(x, y, labels.x, labels.y), *drawn])
    return Chart(labels.name, labels.title, about, inside, legend=legend)


def _line(at: int, series: Series, x: Axis, y: Axis) -> Html:
    parts = [tag("title", series.label)]
    if series.low and series.high:
        parts.append(tag("path", d=_band(series, x, y), class_="band"))
    runs = _runs(series.x, series.y, x, y)
    path = " ".join(f"M{' L'.join(run)}" for run in runs if run)
    dashes = f"d{at // COLOURS % 3}"
    parts.append(tag("path", d=path, class_=f"line {dashes}"))
    parts += [_dot(run[0], 2.5) for run in runs if len(run) == 1]
    parts += [_dot(f"{spot(x.place(a))} {spot(y.place(b))}", 2.0) for a, b in series.dots]
    return tag("g", *parts, class_=f"c{at % COLOURS}")


def _dot(place: str, size: float) -> Html:
    across, down = place.split()
    return tag("circle", cx=across, cy=down, r=size, class_="dot")


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


def _band(series: Series, x: Axis, y: Axis) -> str:
    above = [p for run in _runs(series.x, series.high, x, y) for p in run]
    below = [p for run in _runs(series.x, series.low, x, y) for p in run]
    places = [*above, *reversed(below)]
    return f"M{' L'.join(places)} Z" if places else ""


def _ends(series: Series) -> str:
    found = [
        (a, b) for a, b in zip(series.x, series.y, strict=True) if a is not None and b is not None
    ]
    if not found:
        return f"{series.label}: nothing"
    (a, b), (c, d) = found[0], found[-1]
    return f"{series.label}: from {b:.4g} at {marked(a)} to {d:.4g} at {marked(c)}"


def _legend(names: Sequence[str]) -> Html:
    items = []
    for at, name in enumerate(names):
        stroke = tag("path", d="M1 6 L23 6", class_=f"line d{at // COLOURS % 3}")
        sample = tag(
            "svg", stroke, viewBox="0 0 24 12", class_=f"key c{at % COLOURS}", aria_hidden="true"
        )
        items.append(tag("li", sample, name))
    return tag("ul", *items, class_="legend")


def bars(
    labels: Labels,
    values: Sequence[tuple[str, float | None, float | None]],
    *,
    zero: bool = True,
) -> Chart | None:
    """A row a label: a bar from 0 with its error, or a dot where 0 says nothing."""
    found = [(n, v, e) for n, v, e in values if v is not None and drawable(v)]
    if not found:
        return None
    left = min(190.0, 20 + LETTER * max(len(name) for name, _, _ in found))
    height = TOP + 22.0 * len(found) + BOTTOM
    ends = [v + sign * (e or 0.0) for _, v, e in found for sign in (-1, 1)]
    x = Axis.of(ends, left, WIDTH - RIGHT, zero=zero)
    y = Axis(0, len(found), TOP, height - BOTTOM)
    rows = [_bar(at, row, x, y, zero) for at, row in enumerate(found)]
    about = f"{labels.x}. {'; '.join(f'{n}: {figure(v, e)}' for n, v, e in found)}"
    inside = joined([_ruler(x, height, labels.x), *rows])
    return Chart(labels.name, labels.title, about, inside, height=height)


def _bar(at: int, row: tuple[str, float, float | None], x: Axis, y: Axis, zero: bool) -> Html:
    name, value, error = row
    middle, end = y.place(at + 0.5), x.place(value)
    most = int((x.start - 12) / LETTER)
    short = name if len(name) <= most else f"{name[: most - 1]}…"
    parts = [tag("title", f"{name}: {figure(value, error)}")]
    parts.append(tag("text", short, x=spot(x.start - 8), y=spot(middle + 4), class_="end"))
    if zero:
        start, stop = sorted((x.place(0.0), end))
        box = {"x": spot(start), "y": spot(middle - 7), "width": spot(stop - start), "height": 14}
        parts.append(tag("rect", **box, class_="bar"))
    if error:
        places = [spot(x.place(value + sign * error)) for sign in (-1, 1)]
        across = spot(middle)
        parts.append(tag("line", x1=places[0], x2=places[1], y1=across, y2=across, class_="error"))
    if not zero:
        parts.append(tag("circle", cx=spot(end), cy=spot(middle), r=4, class_="dot"))
    return tag("g", *parts, class_="c0")


def _ruler(x: Axis, height: float, label: str) -> Html:
    down = height - BOTTOM
    parts: list[Html] = []
    for value in x.marks():
        at = spot(x.place(value))
        parts.append(tag("line", x1=at, x2=at, y1=TOP, y2=spot(down), class_="grid"))
        parts.append(tag("text", marked(value), x=at, y=spot(down + 18), class_="middle"))
    middle = spot((x.start + x.end) / 2)
    parts.append(tag("text", label, x=middle, y=spot(down + 39), class_="middle label"))
    return joined(parts)
