"""Rows of a comparison made comparable: by the starts that both began at.

Starts differ by more than some methods do, so that figures are compared start by start. Two rows
without a common start are compared by what each has gained over its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

Row = Mapping[str, Any]
Pair = tuple[float, float, str]


def gain(figure: str, row: Row, point: Row | None) -> float | None:
    """Mean difference of a figure to the point estimate of the same start; None without one.

    Example:
        >>> point = {"runs": [{"start": "a", "figures": {"nll": 0.2}}]}
        >>> row = {"runs": [{"start": "a", "figures": {"nll": 0.125}}]}
        >>> round(gain("nll", row, point), 3)
        -0.075
    """
    own, base = by_start(figure, row), by_start(figure, point or {})
    common = [start for start in own if start in base]
    if not common or len(common) < len(own):
        return None
    return fmean(own[start] - base[start] for start in common)


def paired(figure: str, one: Row, other: Row, point: Row | None) -> Pair | None:
    """Values of two rows that can be compared, and words on how; None where their means can.

    Example:
        >>> runs = lambda start, nll: {"runs": [{"start": start, "figures": {"nll": nll}}]}
        >>> point = {"runs": runs("a", 0.2)["runs"] + runs("b", 0.25)["runs"]}
        >>> one, other, how = paired("nll", runs("a", 0.1875), runs("b", 0.1875), point)
        >>> round(one, 4), round(other, 4), how
        (-0.0125, -0.0625, ' (differences to MAP, each at its own start)')
    """
    mine, theirs = by_start(figure, one), by_start(figure, other)
    common = [start for start in mine if start in theirs]
    if common:
        some = len(common) < max(len(mine), len(theirs))
        means = [fmean(found[start] for start in common) for found in (mine, theirs)]
        return means[0], means[1], _over(len(common)) if some else ""
    gains = gain(figure, one, point), gain(figure, other, point)
    if gains[0] is None or gains[1] is None:
        return None
    return gains[0], gains[1], " (differences to MAP, each at its own start)"


def by_start(figure: str, row: Row) -> dict[str, float]:
    """The figure of every run, by the hash of its start."""
    runs = [run for run in row.get("runs", []) if run.get("start") is not None]
    found = {run["start"]: run["figures"].get(figure) for run in runs}
    return {start: value for start, value in found.items() if value is not None}


def _over(count: int) -> str:
    return f" (over {count} common start{'s' if count > 1 else ''})"
