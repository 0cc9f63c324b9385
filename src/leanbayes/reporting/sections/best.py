"""Which rows are the best of a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from leanbayes.reporting.able import able
from leanbayes.reporting.pairs import Pair, common
from leanbayes.reporting.results import Row
from leanbayes.reporting.words import direction


def best(rows: Sequence[Row], name: str) -> list[Row]:
    """Rows with the best mean; none where all are equal, or no end is the better one."""
    way = direction(name)
    found = [(row, mean) for row in able(rows) if (mean := mean_of(row, name)) is not None]
    if not way or len({mean for _, mean in found}) < 2:
        return []
    top = max(way * mean for _, mean in found)
    return [row for row, mean in found if way * mean == top]


def mean_of(row: Row, name: str) -> float | None:
    """The mean of a figure; None where there is none, or no number."""
    mean = row.figures[name].mean if name in row.figures else None
    return mean if mean is not None and math.isfinite(mean) else None


def side_by_side(row: Row, other: Row, name: str, its: str | None = None) -> Pair | None:
    """A figure of two rows by the starts that both have; by their means where they have none.

    Args:
        row: One of them.
        other: What it is compared with.
        name: Of the figure.
        its: Of the other row's figure, where that is another one.
    """
    its = its or name
    found = common(_by_start(row, name), _by_start(other, its))
    if found is not None:
        return found
    one, two = mean_of(row, name), mean_of(other, its)
    return None if one is None or two is None else (one, two, "")


def _by_start(row: Row, name: str) -> dict[str, float]:
    return {start: found[name] for start, found in row.starts.items() if name in found}
