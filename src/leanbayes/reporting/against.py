"""Differences of a row to the baseline, and whether they are more than chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leanbayes.reporting.reader import is_number
from leanbayes.reporting.results import Difference
from leanbayes.reporting.words import direction

CLEAR = 2.0  # standard errors, where a file names no p


def against(row: Mapping[str, Any]) -> dict[str, Difference]:
    """By figure: what `compare` tested, or what `demo` subtracted."""
    tested, subtracted = row.get("significance"), row.get("minus_baseline")
    if isinstance(tested, Mapping):
        return {k: _tested(v) for k, v in tested.items() if isinstance(v, Mapping)}
    if isinstance(subtracted, Mapping):
        pairs = {k: v for k, v in subtracted.items() if isinstance(v, Mapping)}
        return {k: _subtracted(k, v) for k, v in pairs.items() if is_number(v.get("mean"))}
    return {}


def _tested(found: Mapping[str, Any]) -> Difference:
    better = found.get("better")
    gap, p = found.get("difference"), found.get("p")
    words = [f"{gap:+.4f}" if is_number(gap) else "", f"p = {p:.2g}" if is_number(p) else ""]
    shown = ", ".join(filter(None, words))
    known = better if isinstance(better, bool) else None
    return Difference(known, shown, tested=known is not None or is_number(p))


def _subtracted(name: str, found: Mapping[str, Any]) -> Difference:
    gap, error = found["mean"], found.get("standard_error")
    if not is_number(error):
        return Difference(None, f"{gap:+.4f}, one seed", tested=False)
    clear = abs(gap) > CLEAR * error and direction(name) != 0
    return Difference(gap * direction(name) > 0 if clear else None, f"{gap:+.4f} ± {error:.4f}")
