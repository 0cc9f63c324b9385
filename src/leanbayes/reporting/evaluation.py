"""What `leanbayes evaluate --suite` measures, as the report sees it: splits, figures and curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

from leanbayes.reporting.reader import Reader, is_number

Curve = Mapping[str, Sequence[float | None]]
Line = tuple[list[float | None], list[float | None]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """One part of a suite.

    Attributes:
        name: "test", "corrupted/fog/3", "ood/digits" and the like.
        kind: "clean", "corrupted", "shifted", "foreign" or "adversarial".
        shift: Name of the corruption or shift; empty where there is none.
        level: Its severity or level.
        count: Rows of data.
        figures: What was measured, by name.
        curves: Lists of equal purpose, by name.
        examples: "certain" and "uncertain": lists of objects.
    """

    name: str
    kind: str
    shift: str = ""
    level: float | None = None
    count: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    examples: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def curve(self, name: str, *parts: str) -> list[list[float | None]] | None:
        """Lists of a curve; None where one is missing, or they differ in length."""
        found = self.curves.get(name, {})
        lists = [list(found.get(part, ())) for part in parts]
        return lists if lists[0] and len({len(each) for each in lists}) == 1 else None

    def line(self, name: str, x: str, y: str) -> Line | None:
        """Two lists of a curve, for a chart; None where a point would be all."""
        found = self.curve(name, x, y)
        return (found[0], found[1]) if found and len(found[0]) > 1 else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """All splits of a model."""

    suite: str
    data: str
    task: str
    settings: Mapping[str, Any]
    splits: tuple[Split, ...]
    summary: Mapping[str, float]
    seconds: float | None = None

    @cached_property
    def by_name(self) -> dict[str, Split]:
        """Splits by their names."""
        return {split.name: split for split in self.splits}

    @property
    def clean(self) -> Split | None:
        """The part that nothing was done to."""
        return next((split for split in self.splits if split.kind == "clean"), None)

    def of_kind(self, *kinds: str) -> list[Split]:
        """Splits of these kinds, in the order of the suite."""
        return [split for split in self.splits if split.kind in kinds]


def evaluation(found: Any, read: Reader, place: str) -> Evaluation:
    """An evaluation of a file; what is wrong in it is told with its place."""
    data = read.table(found, place)
    suite = read.table(data.get("suite", {}), f"{place}.suite")
    splits = read.table(data.get("splits", {}), f"{place}.splits")
    return Evaluation(
        suite=str(suite.get("name", "")),
        data=str(suite.get("data", "")),
        task=str(data.get("task", "")),
        settings=read.table(data.get("settings", {}), f"{place}.settings"),
        splits=tuple(_split(k, v, read, f"{place}.splits.{k}") for k, v in splits.items()),
        summary=numbers(data.get("summary", {}), read, f"{place}.summary"),
        seconds=read.number(data.get("seconds"), f"{place}.seconds"),
    )


def _split(name: str, found: Any, read: Reader, place: str) -> Split:
    data = read.table(found, place)
    shift = read.table(data.get("shift") or {}, f"{place}.shift")
    level = shift.get("severity", shift.get("level"))
    curves = read.table(data.get("curves") or {}, f"{place}.curves")
    examples = read.table(data.get("examples") or {}, f"{place}.examples")
    return Split(
        name=str(name),
        kind=read.word(data.get("kind"), f"{place}.kind"),
        shift=str(shift.get("name", "")),
        level=read.number(level, f"{place}.shift"),
        count=int(read.number(data.get("count"), f"{place}.count") or 0),
        figures=numbers(data.get("figures") or {}, read, f"{place}.figures"),
        curves={k: _curve(v, read, f"{place}.curves.{k}") for k, v in curves.items()},
        examples={k: read.rows(v, f"{place}.examples.{k}") for k, v in examples.items()},
    )


def _curve(found: Any, read: Reader, place: str) -> Curve:
    table = read.table(found, place)
    return {key: read.numbers(value, f"{place}.{key}") for key, value in table.items()}


def numbers(found: Any, read: Reader, place: str) -> dict[str, float]:
    """Numbers by name; those that are null are left out."""
    table = read.table(found, place)
    every = {key: read.number(value, f"{place}.{key}") for key, value in table.items()}
    return {key: value for key, value in every.items() if value is not None}


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of those that are there.

    Example:
        >>> mean([1.0, None, 2.0]), mean([])
        (1.5, None)
    """
    found = [value for value in values if value is not None and is_number(value)]
    return fmean(found) if found else None


def by_name(evaluations: Sequence[Evaluation], split: str, figure: str) -> float | None:
    """A figure of a split, averaged over the seeds."""
    found = (one.by_name.get(split) for one in evaluations)
    return mean(each.figures.get(figure) for each in found if each is not None)
