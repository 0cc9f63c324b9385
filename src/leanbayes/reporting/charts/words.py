"""What charts are made of: words, points and lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from leanbayes.reporting.looks import Look


@dataclass(frozen=True)
class Labels:
    """Words of a chart; the caption is the title's short form on a page."""

    name: str
    title: str
    x: str
    y: str
    caption: str = ""


def beyond(labels: Labels, far: Sequence[tuple[str, float]]) -> Labels:
    """Words that say what lies off the scale of a chart.

    Example:
        >>> beyond(Labels("a", "A chart", "x", "y"), [("swag", 2.25)]).title
        'A chart; off the scale: swag (2.25)'
    """
    if not far:
        return labels
    more = "; off the scale: " + ", ".join(f"{name} ({value:.4g})" for name, value in far)
    caption = f"{labels.caption}{more}" if labels.caption else ""
    return replace(labels, title=f"{labels.title}{more}", caption=caption)


@dataclass(frozen=True)
class Point:
    """A place with a name; errors are standard errors."""

    label: str
    x: float
    y: float
    y_error: float | None = None
    look: Look | None = None


@dataclass(frozen=True)
class Series:
    """A line.

    Attributes:
        label: Its name.
        x: Places across.
        y: Heights; None is a gap.
        low: Lower end of a band, or of bars where the chart draws `bars`.
        high: Upper end.
        dots: Single places.
        look: Colour and dashes; by its place among the lines where it is None.
    """

    label: str
    x: Sequence[float | None]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    dots: Sequence[tuple[float, float]] = ()
    look: Look | None = None
