"""Rows that the file of an experiment has already: which ones go on, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from leanbayes.cli.record_file import earlier, refuse_others

if TYPE_CHECKING:  # it imports torch
    from leanbayes.experiments import Experiment

Row = dict[str, Any]
Value = TypeVar("Value")
KEYS = {"experiment": str, "settings": dict, "rows": list}
PLACES = ("root", "device", "keep")  # where it runs: a matter of the machine
OTHER = "new rows go on from another trained network than rows of the file"
UNKNOWN = "rows of the file do not say which trained network they go on from"


@dataclass(frozen=True)
class Kept:
    """What goes on.

    Attributes:
        whole: The experiment with all that the file was ever asked for, and is asked for now.
        rows: Of the file, by label.
    """

    whole: Experiment
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def head(self) -> dict[str, Any]:
        """The file without its rows."""
        return head_of(self.whole)

    @property
    def order(self) -> list[str]:
        """Labels in the order of the experiment."""
        return labels_of(self.whole)

    def says(self, asked: Sequence[str], name: str) -> str:
        """What of the file goes on, in words."""
        there = sum(label in self.rows for label in asked)
        others = len(self.rows) - there
        more = f"; others, not asked for now, stay as they are: {others}" if others else ""
        return f"{there} of {len(asked)} rows kept from {name}{more}"

    def other_start(self, row: Row) -> str | None:
        """Words where a new row goes on from another trained network than rows of the file."""
        if row.get("start") is None or not self.rows:
            return None
        starts = (found.get("start") for found in self.rows.values())
        known = {start for start in starts if start is not None}
        if known == {row["start"]}:
            return None
        if not known:
            return f"{UNKNOWN}, new ones say {row['start']}"
        return f"{OTHER}: {', '.join(sorted(known))} there, {row['start']} now"


def kept(out: Path | None, chosen: Experiment) -> Kept:
    """The rows that an earlier run under the same settings has left.

    Rows that are not asked for now stay: `Experiment.asked` says which there are, not what they
    are.
    """
    from leanbayes.errors import CheckpointError

    found = earlier(out, KEYS, "leanbayes experiment")
    if out is None or found is None:
        return Kept(chosen)
    free = {*PLACES, *chosen.asked}
    old, new = (_compared(head, free) for head in (found, head_of(chosen)))
    refuse_others(out, "rows", old, new)
    rows = {row.get("label"): row for row in found["rows"]}
    result = Kept(_both(chosen, found["settings"]), rows)
    labels = result.order
    strange = [label for label in rows if label not in labels]
    if strange:
        raise CheckpointError(f"--resume: {out} has a row {strange[0]!r}, which is not of {labels}")
    typer.echo(result.says(labels_of(chosen), out.name), err=True)
    return result


def head_of(chosen: Experiment) -> dict[str, Any]:
    """The file without its rows; the folder of the data is a matter of the machine."""
    settings = {k: v for k, v in asdict(chosen).items() if k != "root"}
    return {"experiment": chosen.name, "settings": settings}


def labels_of(chosen: Experiment) -> list[str]:
    """What is asked for, in order."""
    return list(dict.fromkeys(label for label, _ in chosen.parts()))


def _compared(head: dict[str, Any], free: set[str]) -> dict[str, Any]:
    settings = {k: v for k, v in head["settings"].items() if k not in free}
    return {"experiment": head["experiment"], **settings}


def _both(chosen: Experiment, old: dict[str, Any]) -> Experiment:
    """The experiment with the lists of the file and those of now put together."""
    usual = type(chosen)()
    both: dict[str, Any] = {
        name: together(old.get(name) or (), getattr(chosen, name), getattr(usual, name))
        for name in chosen.asked
    }
    return replace(chosen, **both)


def together(
    old: Sequence[Value], new: Sequence[Value], usual: Sequence[Value]
) -> tuple[Value, ...]:
    """All of two lists; where the new one lacks something, in the usual order.

    Example:
        >>> together(["d", "a"], ["c"], ["a", "b", "c"]), together(["a"], ["d", "a"], ["a"])
        (('a', 'c', 'd'), ('d', 'a'))
    """
    if all(value in new for value in old):
        return tuple(new)
    found = tuple(dict.fromkeys((*old, *new)))
    places = {value: at for at, value in enumerate(usual)}
    return tuple(sorted(found, key=lambda value: places.get(value, len(places))))
