"""Which methods can do the task at all: other figures say little of those that cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence

from leanbayes.reporting.results import Row

LEAST = 0.5  # of the best accuracy


def able(rows: Sequence[Row]) -> list[Row]:
    """Rows with half of the best accuracy at least, and those without an accuracy.

    A method that is wrong about nearly everything may be calibrated, or tell its few right answers
    from the wrong ones, better than any other; nobody would choose it for that.

    Example:
        >>> from leanbayes.reporting.results import Figure
        >>> rows = [Row(label=str(v), figures={"accuracy": Figure(v)}) for v in (0.1, 0.5, 0.9)]
        >>> [row.label for row in able(rows)]
        ['0.5', '0.9']
    """
    known = [v for row in rows if (v := _accuracy(row)) is not None]
    least = LEAST * max(known, default=0.0)
    return [row for row in rows if (v := _accuracy(row)) is None or v >= least]


def _accuracy(row: Row) -> float | None:
    mean = row.figures["accuracy"].mean if "accuracy" in row.figures else None
    return mean if mean is not None and math.isfinite(mean) else None
