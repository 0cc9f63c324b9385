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
    found = common(mine, theirs)
    if found is not None:
        return *found[:2], f" ({found[2]})" if found[2] else ""
    gains = gain(figure, one, point), gain(figure, other, point)
    if gains[0] is None or gains[1] is None:
        return None
    return gains[0], gains[1], " (differences to MAP, each at its own start)"


def common(mine: Mapping[str, float], theirs: Mapping[str, float]) -> Pair | None:
    """Means over the starts that both have, and words where these are not all; None without one.

    Example:
        >>> common({"a": 0.25, "b": 0.5}, {"b": 0.75, "a": 0.25, "c": 1.0})
        (0.375, 0.5, 'over 2 common starts')
        >>> common({"a": 0.25}, {"a": 0.5}), common({"a": 0.25}, {"b": 0.5})
        ((0.25, 0.5, ''), None)
    """
    both = [start for start in mine if start in theirs]
    if not both:
        return None
    words = f"over {len(both)} common start{'s' if len(both) > 1 else ''}"
    one, other = (fmean(found[start] for start in both) for found in (mine, theirs))
    return one, other, words if len(both) < max(len(mine), len(theirs)) else ""


def by_start(figure: str, row: Row) -> dict[str, float]:
    """The figure of every run, by the hash of its start."""
    runs = [run for run in row.get("runs", []) if run.get("start") is not None]
    found = {run["start"]: run["figures"].get(figure) for run in runs}
    return {start: value for start, value in found.items() if value is not None}
