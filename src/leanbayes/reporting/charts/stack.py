"""Areas on each other: total uncertainty as aleatoric plus epistemic (iBNN's Fig. 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leanbayes.reporting.axes import Axis, marked
from leanbayes.reporting.canvas import Chart, frame, spot
from leanbayes.reporting.charts.words import Labels
from leanbayes.reporting.looks import Look, plain
from leanbayes.reporting.markup import Html, joined, tag

WIDTH, HEIGHT = 380, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 10, 12, 48
PARTS = ("aleatoric", "epistemic")


@dataclass(frozen=True)
class Parts:
    """Uncertainty by level, in its two parts."""

    levels: Sequence[float]
    aleatoric: Sequence[float]
    epistemic: Sequence[float]

    @property
    def total(self) -> list[float]:
        """Their sum."""
        return [a + e for a, e in zip(self.aleatoric, self.epistemic, strict=True)]


def stack(labels: Labels, parts: Parts, top: float, look: Look | None = None) -> Chart:
    """The aleatoric part below, the epistemic one on it.

    Args:
        labels: Words.
        parts: Numbers.
        top: End of the axis up, the same for charts side by side.
        look: Of the method, where a reader may choose it.
    """
    x = Axis(parts.levels[0], parts.levels[-1], LEFT, WIDTH - RIGHT)
    y = Axis(0, top * 1.05 or 1.0, HEIGHT - BOTTOM, TOP)
    zero = [0.0] * len(parts.levels)
    under = _area(parts.levels, zero, parts.aleatoric, x, y)
    above = _area(parts.levels, parts.aleatoric, parts.total, x, y)
    keys = plain(PARTS)
    inside = joined(
        [
            frame(x, y, labels.x, labels.y),
            tag("g", tag("title", PARTS[0]), under, class_=keys[0].colour),
            tag("g", tag("title", PARTS[1]), above, class_=keys[1].colour),
        ]
    )
    about = f"{labels.y} against {labels.x}. {'; '.join(_told(parts))}"
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


def _area(
    levels: Sequence[float], low: Sequence[float], high: Sequence[float], x: Axis, y: Axis
) -> Html:
    up = [f"{spot(x.place(a))} {spot(y.place(b))}" for a, b in zip(levels, high, strict=True)]
    down = [f"{spot(x.place(a))} {spot(y.place(b))}" for a, b in zip(levels, low, strict=True)]
    return tag("path", d=f"M{' L'.join([*up, *reversed(down)])} Z", class_="area full")


def _told(parts: Parts) -> list[str]:
    every = zip(parts.levels, parts.aleatoric, parts.epistemic, strict=True)
    return [f"at {marked(at)}: aleatoric {a:.4f}, epistemic {e:.4f}" for at, a, e in every]
