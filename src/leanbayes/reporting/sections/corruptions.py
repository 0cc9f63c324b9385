"""Errors by kind of corruption: the values behind the mean corruption error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leanbayes.reporting.evaluation import by_name, mean
from leanbayes.reporting.looks import baseline
from leanbayes.reporting.results import Result, Row
from leanbayes.reporting.sections.section import Block, Section, blocks, evaluated
from leanbayes.reporting.table import Cell, Table

INTRO = (
    "Error in percent, mean over the severities; best of a kind in bold. mCE: each kind's error "
    "summed over severities, relative to that of the reference in the table's caption, then the "
    "mean over kinds (Hendrycks and Dietterich, 2019); below 100 is better than the reference."
)
MOST = 40  # kinds in a table


def section(results: Sequence[Result]) -> Section | None:
    """A table a result."""
    return blocks("Kinds of corruption", INTRO, results, _block)


def _block(result: Result) -> Block | None:
    rows = {row.label: errors(row) for row in evaluated(result)}
    rows = {label: found for label, found in rows.items() if found}
    kinds = list(dict.fromkeys(kind for found in rows.values() for kind in found))[:MOST]
    if not kinds:
        return None
    return Block((), after=_table(result, rows, kinds).html())


def errors(row: Row) -> dict[str, dict[float, float]]:
    """Error rates, averaged over the seeds, by kind and severity."""
    found: dict[str, dict[float, float]] = {}
    for split in row.evaluations[0].of_kind("corrupted"):
        value = by_name(row.evaluations, split.name, "accuracy")
        if value is not None and split.level is not None:
            found.setdefault(split.shift, {})[split.level] = 1 - value
    return found


def corruption_error(
    own: Mapping[str, Mapping[float, float]], other: Mapping[str, Mapping[float, float]]
) -> float | None:
    """Mean over kinds of the ratio of summed errors; None where kinds or severities differ.

    Example:
        >>> corruption_error({"fog": {1: 0.1, 2: 0.2}}, {"fog": {1: 0.2, 2: 0.4}})
        0.5
    """
    if own.keys() != other.keys() or any(own[k].keys() != other[k].keys() for k in own):
        return None
    below = {kind: sum(found.values()) for kind, found in other.items()}
    if not all(value > 0 for value in below.values()):
        return None
    return mean(sum(own[kind].values()) / below[kind] for kind in own)


def _table(
    result: Result, rows: Mapping[str, Mapping[str, Mapping[float, float]]], kinds: Sequence[str]
) -> Table:
    first = baseline(result)
    reference = rows.get(first.label) if first is not None else None
    ratios = {k: corruption_error(v, reference) if reference else None for k, v in rows.items()}
    columns = {kind: _column(rows, kind) for kind in kinds}
    shared = [("mCE", {k: None if v is None else 100 * v for k, v in ratios.items()})]
    every = [("mean", _means(columns)), *columns.items()]
    every = [*(shared if any(v is not None for v in ratios.values()) else []), *every]
    body = [[Cell(label, label), *(_cell(found, label) for _, found in every)] for label in rows]
    named = f", mCE against {first.label}" if reference and first is not None else ""
    head = ["method", *(name.replace("_", " ") for name, _ in every)]
    caption = f"Error by kind of corruption, %{named}"
    return Table(caption, head, body, [0, *(-1 for _ in every)])


def _column(
    rows: Mapping[str, Mapping[str, Mapping[float, float]]], kind: str
) -> dict[str, float | None]:
    """The mean over severities of every method, in percent."""
    found = {label: mean(own.get(kind, {}).values()) for label, own in rows.items()}
    return {label: None if v is None else 100 * v for label, v in found.items()}


def _means(columns: Mapping[str, Mapping[str, float | None]]) -> dict[str, float | None]:
    labels = dict.fromkeys(label for found in columns.values() for label in found)
    return {label: mean(found[label] for found in columns.values()) for label in labels}


def _cell(found: Mapping[str, float | None], label: str) -> Cell:
    value = found.get(label)
    known = [v for v in found.values() if v is not None]
    best = value is not None and len(set(known)) > 1 and value == min(known)
    return Cell("-" if value is None else f"{value:.1f}", value, best)
