"""Files that belong together as one result: each model's evaluation of the same suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from leanbayes.reporting.results import Result, Row


def gathered(results: Sequence[Result]) -> list[Result]:
    """Results in their order; evaluations of one suite on the same data stand in the first's place.

    Several files of `leanbayes evaluate RUN --suite NAME` are several methods of one comparison.
    """
    groups: dict[tuple[str, ...], list[Result]] = {}
    for at, result in enumerate(results):
        groups.setdefault(_key(result, at), []).append(result)
    return [_one(group) if len(group) > 1 else group[0] for group in groups.values()]


def _key(result: Result, at: int) -> tuple[str, ...]:
    if result.kind != "evaluation":
        return (str(at),)
    found = result.rows[0].evaluations[0]
    return ("evaluation", found.data, found.task)


def _one(group: Sequence[Result]) -> Result:
    first = group[0]
    rows = _told_apart([(each.name, row) for each in group for row in each.rows])
    settings = {
        row.label: row.evaluations[0].settings for row in rows if row.evaluations[0].settings
    }
    return replace(
        first,
        name=", ".join(dict.fromkeys(each.name for each in group)),
        rows=rows,
        settings=settings,
        origins=tuple(dict.fromkeys(origin for each in group for origin in each.origins)),
        pictures=tuple(dict.fromkeys(path for each in group for path in each.pictures)),
    )


def _told_apart(found: Sequence[tuple[str, Row]]) -> tuple[Row, ...]:
    """Labels that occur twice get the name of their file."""
    labels = sorted(row.label for _, row in found)
    twice = {label for label, group in groupby(labels) if len(list(group)) > 1}
    return tuple(
        replace(row, label=f"{row.label} ({name})") if row.label in twice else row
        for name, row in found
    )
