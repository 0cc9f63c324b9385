"""Values of a file by their types; whatever is wrong is told with its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from leanbayes.errors import DataError
from leanbayes.reporting.results import Figure

PRICES = (
    *("parameters", "parameters_added", "samples", "step_ratio", "training_ratio"),
    *("predict_ratio", "predict_ratio_sample", "flops_step_ratio", "flops_predict_ratio"),
    *("activation_ratio", "peak_memory_ratio", "training_seconds", "seconds"),
)


class Reader:
    """Reads the parts of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def wrong(self, place: str, wanted: str, found: Any) -> DataError:
        """An error about one place."""
        return DataError(f"{self.path}: {place} should be {wanted}, found {str(found)[:80]!r}")

    def table(self, value: Any, place: str) -> Mapping[str, Any]:
        """An object."""
        if not isinstance(value, Mapping):
            raise self.wrong(place, "an object", value)
        return value

    def rows(self, value: Any, place: str) -> list[Mapping[str, Any]]:
        """A list of objects."""
        if not isinstance(value, list) or not all(isinstance(row, Mapping) for row in value):
            raise self.wrong(place, "a list of objects", value)
        return value

    def word(self, value: Any, place: str) -> str:
        """A text."""
        if not isinstance(value, str):
            raise self.wrong(place, "a text", value)
        return value

    def number(self, value: Any, place: str) -> float | None:
        """A number, or nothing."""
        if value is not None and not is_number(value):
            raise self.wrong(place, "a number", value)
        return None if value is None else float(value)

    def numbers(self, value: Any, place: str) -> list[float | None]:
        """A list of numbers, some of which may be null."""
        if not isinstance(value, list):
            raise self.wrong(place, "a list of numbers", value)
        return [self.number(each, f"{place}[{at}]") for at, each in enumerate(value)]

    def figures(self, table: Any, place: str) -> dict[str, Figure]:
        """Objects with a mean and an error, by name."""
        return {
            name: self.figure(found, f"{place}.{name}")
            for name, found in self.table(table, place).items()
            if isinstance(found, Mapping)
        }

    def figure(self, found: Mapping[str, Any], place: str) -> Figure:
        """Mean and error, under either of their names."""
        error = found.get("standard_error", found.get("error"))
        return Figure(self.number(found.get("mean"), place), self.number(error, place))

    def prices(self, row: Mapping[str, Any]) -> dict[str, float]:
        """What a row cost: beside its figures, or in an object of its own."""
        own = row.get("prices")
        every = {**row, **own} if isinstance(own, Mapping) else row
        found = {name: self.number(every.get(name), name) for name in PRICES if name in every}
        return {name: value for name, value in found.items() if value is not None}


def is_number(value: Any) -> TypeGuard[float]:
    """True for numbers, not for truth values; nor for whole ones that no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 2**1000
