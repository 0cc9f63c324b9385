"""Named points, and the front of those that nothing beats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from leanbayes.reporting.axes import Axis, drawable, marked, together
from leanbayes.reporting.canvas import (
    BOTTOM,
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
from leanbayes.reporting.charts.words import Labels, Point, beyond
from leanbayes.reporting.looks import plain
from leanbayes.reporting.markup import NOTHING, Html, joined, tag
from leanbayes.reporting.words import figure

Box = tuple[float, float, float, float]
# Part of a name before its place, by its class: so its near end is there, however wide its letters.
BEFORE = {"name": 0.0, "name end": 1.0, "name middle": 0.5}
SIDES = (  # of a point: how far to the right and down a name is
    (9.0, 4.0, "name"),
    (-9.0, 4.0, "name end"),
    (0.0, -11.0, "name middle"),
    (0.0, 19.0, "name middle"),
    (8.0, -8.0, "name"),
    (8.0, 16.0, "name"),
    (-8.0, -8.0, "name end"),
    (-8.0, 16.0, "name end"),
)
FAR = tuple(  # of a point among many: a line leads there
    (across * side, down, how)
    for across, down in ((16.0, 30.0), (16.0, -22.0), (30.0, 46.0), (30.0, -38.0), (12.0, 62.0))
    for side, how in ((1, "name"), (-1, "name end"))
)


def scatter(
    labels: Labels, points: Sequence[Point], *, log: bool = False, way: int = 0
) -> Chart | None:
    """Named points with error bars; names that would lie on others are told by a touch alone.

    Points too far from all others are named in the caption.

    Args:
        labels: Words.
        points: Places.
        log: Equal factors across are equally far.
        way: +1 where high is better, -1 where low is: the front of cheap and good points is drawn.
    """
    found = [p for p in points if drawable(p.x) and drawable(p.y) and (p.x > 0 or not log)]
    if not found:
        return None
    least, most = together(p.y for p in found) or (-math.inf, math.inf)
    far = [(p.label, p.y) for p in found if not least <= p.y <= most]
    labels, found = beyond(labels, far), [p for p in found if least <= p.y <= most]
    ends = [p.y + sign * (p.y_error or 0.0) for p in found for sign in (-1, 1)]
    x = Axis.of([p.x for p in found], LEFT, WIDTH - RIGHT, log=log)
    y = Axis.of(ends, HEIGHT - BOTTOM, TOP)
    best = front(found, way)
    taken: list[Box] = [_around(x.place(p.x), y.place(p.y)) for p in found]
    order = sorted(enumerate(found), key=lambda pair: (_is_off(pair[1]), pair[1] not in best))
    marks = {at: _mark(at, p, (x, y), taken, p in best) for at, p in order}
    drawn = sorted(marks, key=lambda at: (not _is_off(found[at]), at))
    words = "; ".join(f"{p.label}: {marked(p.x)}, {figure(p.y, p.y_error)}" for p in found)
    told = f" Nothing is both cheaper and better than: {', '.join(p.label for p in best)}."
    about = f"{labels.y} against {labels.x}. {words}.{told if best else ''}"
    inside = joined(
        [frame(x, y, labels.x, labels.y), _stairs(best, x, y), *(marks[at] for at in drawn)]
    )
    return Chart(labels.name, labels.title, about, inside, caption=labels.caption)


def front(points: Sequence[Point], way: int) -> list[Point]:
    """Points that no other one beats in price (low) and quality, by price; none without a way.

    Example:
        >>> points = [Point("a", 1, 3), Point("b", 2, 2), Point("c", 3, 2.5)]
        >>> [p.label for p in front(points, -1)], [p.label for p in front(points, 1)]
        (['a', 'b'], ['a'])
    """
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.x, -way * p.y)) if way else ():
        if not kept or way * point.y > way * kept[-1].y:
            kept.append(point)
    return kept


def _stairs(best: Sequence[Point], x: Axis, y: Axis) -> Html:
    if len(best) < 2:
        return NOTHING
    places = [(spot(x.place(p.x)), spot(y.place(p.y))) for p in best]
    (a, b), *rest = places
    steps = "".join(f" H{across} V{up}" for across, up in rest)
    return tag("path", d=f"M{a} {b}{steps}", class_="front")


def _is_off(point: Point) -> bool:
    return point.look is not None and not point.look.on


def _mark(at: int, point: Point, axes: tuple[Axis, Axis], taken: list[Box], is_best: bool) -> Html:
    x, y = axes
    place, height = x.place(point.x), y.place(point.y)
    said = tag("title", f"{point.label}: {figure(point.y, point.y_error)} at {marked(point.x)}")
    parts = [said]
    if point.y_error:
        ends = [spot(y.place(point.y + sign * point.y_error)) for sign in (-1, 1)]
        across = spot(place)
        parts.append(tag("line", x1=across, x2=across, y1=ends[0], y2=ends[1], class_="error"))
    if is_best:
        parts.append(tag("circle", cx=spot(place), cy=spot(height), r=7.5, class_="ring"))
    parts.append(tag("circle", cx=spot(place), cy=spot(height), r=4.5, class_="dot"))
    parts.append(_name(point.label, place, height, taken))
    look = point.look or plain([""] * (at + 1))[at]
    return tag("g", *parts, class_=f"{look.classes} point", data_m=look.key or None)


def _name(label: str, x: float, y: float, taken: list[Box]) -> Html:
    """A name at the first place where nothing is yet, near its point or at the end of a line."""
    wide = len(label) * LETTER
    for right, down, how in (*SIDES, *FAR):
        start = x + right - wide * BEFORE[how]
        box = (start, y + down - 10, start + wide, y + down + 2)
        end = box[2] + LETTER  # a wide letter more than about
        inside = box[0] > LEFT and end < WIDTH and box[1] > 0 and box[3] < HEIGHT - BOTTOM
        lead = _lead(x, y, right, down) if (right, down, how) in FAR else None
        parts = [box, *_spots(lead)]
        if inside and not any(touch(part, other) for part in parts for other in taken):
            taken += parts
            text = tag("text", label, x=spot(x + right), y=spot(y + down), class_=how)
            return text if lead is None else joined([_line(lead), text])
    return NOTHING


def _lead(x: float, y: float, right: float, down: float) -> Box:
    """The ends of a line from outside of a point and its ring to its name."""
    across, up = math.copysign(6.0, right), math.copysign(8.0, down)
    return x + across, y + up, x + right, y + down - (11 if down > 0 else -3)


def _spots(lead: Box | None) -> list[Box]:
    """What a line covers: spots that are closer than any box is wide."""
    if lead is None:
        return []
    parts = [at / 12 for at in range(13)]
    spots = [(lead[0] + (lead[2] - lead[0]) * t, lead[1] + (lead[3] - lead[1]) * t) for t in parts]
    return [(x - 0.5, y - 0.5, x + 0.5, y + 0.5) for x, y in spots]


def _line(lead: Box) -> Html:
    ends = dict(zip(("x1", "y1", "x2", "y2"), map(spot, lead), strict=True))
    return tag("line", class_="lead", **ends)


def _around(x: float, y: float) -> Box:
    return x - 5, y - 5, x + 5, y + 5


def touch(one: Box, other: Box) -> bool:
    """True where two boxes overlap."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
