"""Result files as plain data: what each of this project's commands writes, in one form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from leanbayes.errors import DataError

if TYPE_CHECKING:
    from leanbayes.reporting.evaluation import Evaluation

Kind = Literal["demo", "compare", "experiment", "evaluate", "evaluation", "landscape", "trajectory"]
LARGEST = 256 * 2**20  # bytes of a file


@dataclass(frozen=True)
class Figure:
    """Mean over the seeds and its standard error; None where there is none."""

    mean: float | None
    error: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """A method, or a part of an experiment.

    Attributes:
        label: Its name.
        figures: What was measured, by name.
        prices: What it cost, by name.
        note: What is special about it.
        failed: Why it has no figures.
        data: All that the file says.
        evaluations: Of a suite, one a seed.
        layers: Of the model: how much of each is random, and how far it spreads.
        against: Difference to the baseline by figure: better, worse, or None for no clear one.
        starts: Figures by the start of a run, or by its seed where it has none.
    """

    label: str
    figures: Mapping[str, Figure]
    prices: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    failed: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    evaluations: tuple[Evaluation, ...] = ()
    layers: tuple[Mapping[str, Any], ...] = ()
    against: Mapping[str, Difference] = field(default_factory=dict)
    starts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """To the baseline; `better` is None where it may be chance, or could not be tested."""

    better: bool | None
    words: str
    tested: bool = True


@dataclass(frozen=True)
class Origin:
    """How figures came about."""

    command: str
    commit: str
    versions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """What a file holds.

    Attributes:
        name: Of the file.
        kind: The command that wrote it.
        title: What it is about, in a few words.
        facts: Further words: seeds, size of the test part.
        rows: Methods, or parts of an experiment.
        settings: What the figures depend on, by name.
        origins: Commands, commits and versions, each once.
        pictures: Paths of pictures that belong to it.
    """

    name: str
    kind: Kind
    title: str
    facts: tuple[str, ...]
    rows: tuple[Row, ...]
    settings: Mapping[str, Any]
    origins: tuple[Origin, ...]
    pictures: tuple[Path, ...] = ()

    @property
    def figure_names(self) -> list[str]:
        """Names of figures that a row has, in the order of the file."""
        return list(dict.fromkeys(name for row in self.rows for name in row.figures))

    @property
    def price_names(self) -> list[str]:
        """Names of prices that a row has."""
        return list(dict.fromkeys(name for row in self.rows for name in row.prices))


def read(path: Path) -> Result:
    """Read a file of `leanbayes demo`, `compare`, `experiment`, `evaluate` and the like."""
    from leanbayes.reporting.forms import parsed  # it imports the classes of this file

    try:
        if path.stat().st_size > LARGEST:
            raise DataError(f"{path}: has more than {LARGEST // 2**20} MB; expected a result file")
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{path}: cannot be read: {reason}. Expected a result file") from None
    except (ValueError, RecursionError) as error:
        words = " ".join(str(error).split())
        raise DataError(f"{path}: is not JSON: {words}") from None
    return parsed(data, path)
