"""Which rows are the best of a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from leanbayes.reporting.results import Row
from leanbayes.reporting.words import direction


def best(rows: Sequence[Row], name: str) -> list[Row]:
    """Rows with the best mean; none where all are equal, or no end is the better one."""
    way = direction(name)
    found = [(row, mean) for row in rows if (mean := mean_of(row, name)) is not None]
    if not way or len({mean for _, mean in found}) < 2:
        return []
    top = max(way * mean for _, mean in found)
    return [row for row, mean in found if way * mean == top]


def mean_of(row: Row, name: str) -> float | None:
    """The mean of a figure; None where there is none, or no number."""
    mean = row.figures[name].mean if name in row.figures else None
    return mean if mean is not None and math.isfinite(mean) else None
