"""A suite: the splits on which a model is evaluated, and what their inputs and labels mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import Dataset

from leanbayes.data import Data, Normalize, Task
from leanbayes.errors import ConfigError
from leanbayes.evaluation.attack import Attack
from leanbayes.evaluation.names import Source, splits_of
from leanbayes.evaluation.part import check_part, digest, rows_at
from leanbayes.evaluation.split import Split

EXAMPLES = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Suite:
    """Splits in the order in which they are evaluated; a clean one comes before those of it.

    `Suite.of` makes one from data and names; this constructor takes splits of any make.

    Attributes:
        name: Of the suite.
        splits: In order.
        data: Name of the data.
        task: What the targets are.
        classes: Names of labels.
        normalize: How the network's inputs are scaled; splits of another scale are brought to it.
        ignore_index: The label that means "no label".
        sweep: Also figures by number of samples, on clean splits.
        examples: Most and least certain images of clean splits, so many of each.
    """

    name: str
    splits: tuple[Split, ...]
    data: str = "data"
    task: Task = "classification"
    classes: tuple[str, ...] = ()
    normalize: Normalize | None = None
    ignore_index: int = -100
    sweep: bool = False
    examples: int = 0

    def __post_init__(self) -> None:
        if not self.splits:
            raise ConfigError("a suite needs at least one split")
        clean: set[str] = set()
        for number, split in enumerate(self.splits):
            if any(split.name == other.name for other in self.splits[:number]):
                raise ConfigError(f"two splits are called {split.name!r}")
            if split.of is not None and split.of not in clean:
                raise ConfigError(
                    f"split {split.name!r} is of {split.of!r}, which is no clean split before it"
                )
            clean |= {split.name} if split.kind == "clean" else set()

    @staticmethod
    def of(  # noqa: PLR0913
        data: Any,
        splits: str | Sequence[str | Split] = "standard",
        *,
        part: str = "test",
        rows: int | Mapping[str, int] | None = None,
        samples: Mapping[str, int] | None = None,
        foreign: Mapping[str, Any] | None = None,
        normalize: Normalize | Literal["data"] | None = "data",
        levels: Mapping[str, Sequence[float]] | None = None,
        attack: Attack | None = None,
        sweep: bool = False,
        examples: bool | int = False,
    ) -> Suite:
        """A suite from data and names of splits.

        Names, one or more, with commas between them: `test` (the clean part), `corrupted` (15 kinds
        by 5 severities), `corrupted:fog`, `corrupted:blur` (a group), `corrupted:fog/3`, `noise`
        (`mix_noise`), `salt_and_pepper`, `rotated`, each also with one level (`noise:0.4`), `ood`
        (all foreign data), `ood:NAME`, `pgd`, `fgsm`; or a suite by name: `quick` (test),
        `standard` (test, corrupted, ood), `full` (all), which leave out what does not fit the data.

        Args:
            data: A `Data`, or (inputs, targets), or a Dataset of such.
            splits: Names, or splits of your own.
            part: Of the data, that is the clean one.
            rows: Corrupted, shifted and attacked are the first so many rows; all if None. By the
                first words of names: `{"corrupted": 2000, "pgd": 1000}`.
            samples: Draws a prediction of some splits, by the same words; of the others as many as
                `lb.evaluate` is told.
            foreign: Data, or parts scaled as the data, by name; `ood:NAME` looks here first, then
                among the data's extra parts, then for a reader that needs no files.
            normalize: How the network's inputs are scaled; as the data if left out.
            levels: Other levels of `noise`, `salt_and_pepper` and `rotated`.
            attack: Other settings of `pgd` and `fgsm`.
            sweep: Also figures by number of samples.
            examples: Also the most and the least certain images; 8 of each, or so many.

        Example:
            >>> import leanbayes as lb, torch
            >>> x, y = torch.rand(20, 1, 8, 8), torch.arange(20) % 3
            >>> suite = lb.Suite.of((x, y), "test,rotated:30,pgd", rows=10)
            >>> [(split.name, split.count) for split in suite.splits]
            [('test', 20), ('rotated/30', 10), ('pgd', 10)]
        """
        whole = as_data(data, part)
        if not isinstance({} if foreign is None else foreign, Mapping):
            raise ConfigError(
                f"foreign is data by name, found a {type(foreign).__name__}. Write "
                'foreign={"noise": x}'
            )
        own = whole.normalize if normalize == "data" else normalize
        source = Source(
            *(whole, part, rows, dict(foreign or {}), dict(levels or {}), attack or Attack()),
            samples=dict(samples or {}),
        )
        name, found = splits_of(source, splits)
        return Suite(
            name=name,
            splits=tuple(found),
            data=whole.name,
            task=whole.task,
            classes=whole.classes,
            normalize=own,
            ignore_index=whole.ignore_index,
            sweep=sweep,
            examples=EXAMPLES if examples is True else int(examples),
        )

    def named(self, name: str) -> Suite:
        """The same under another name."""
        return replace(self, name=name)

    def identity(self) -> dict[str, Any]:
        """What the figures depend on, as plain data."""
        own = self.normalize
        parts = {id(split.part): split.part for split in self.splits}  # many are of one part
        data = {key: digest(part) for key, part in parts.items()}
        return {
            "splits": {split.name: split.identity(data[id(split.part)]) for split in self.splits},
            "normalize": None if own is None else [list(own.mean), list(own.std)],
            "ignore_index": self.ignore_index,
            "sweep": self.sweep,
            "examples": self.examples,
        }


def as_data(data: Any, part: str) -> Data:
    """Plain parts as data without a name."""
    if isinstance(data, Data):
        return data
    if not isinstance(data, (tuple, list, Dataset)):
        raise ConfigError(
            "a suite is made of lb.data.Data, (inputs, targets) or a Dataset; found "
            f"{type(data).__name__}"
        )
    check_part(data, part)
    return Data(name="data", task=_task(rows_at(data, [0])[1]), train=None, test=data)


def _task(target: Tensor | None) -> Task:
    if target is None:
        raise ConfigError("the clean part needs targets: expected (inputs, targets)")
    target = torch.as_tensor(target)
    if target.is_floating_point():
        return "regression"
    return "segmentation" if target.dim() > 2 else "classification"
