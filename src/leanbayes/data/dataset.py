"""What every reader gives: the parts of a data set, ready for a network, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from leanbayes.errors import ConfigError

Task = Literal["classification", "binary", "regression", "segmentation"]
TASKS: tuple[Task, ...] = get_args(Task)


@dataclass(frozen=True)
class Normalize:
    """`(x - mean) / std` by channel, for images in [0, 1] or columns of a table.

    Attributes:
        mean: One number a channel (dim 1), or column.
        std: As mean, positive.

    Example:
        >>> scale = Normalize((0.5,), (0.25,))
        >>> scale(torch.ones(1, 1, 2, 2)).unique()
        tensor([2.])
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not all(s > 0 for s in self.std):
            raise ConfigError(
                f"normalize needs a mean and a positive std a channel, found {self.mean} and "
                f"{self.std}"
            )

    @classmethod
    def of(cls, x: Tensor) -> Self:
        """Mean and standard deviation of every channel of x [N, C, ...]; constants get a std of 1.

        Floating numbers as they are, bytes as parts of 255.
        """
        values = as_float(x).double().transpose(0, 1).flatten(1)
        std = values.std(1, correction=0)
        std = torch.where(std > 0, std, 1.0)
        return cls(tuple(values.mean(1).tolist()), tuple(std.tolist()))

    def __call__(self, x: Tensor) -> Tensor:
        """Normalised float32; bytes are taken as parts of 255, float64 is worked out as such."""
        x = x if x.dtype == torch.float64 else as_float(x)
        mean, std = (self._like(v, x, x.dtype) for v in (self.mean, self.std))
        return ((x - mean) / std).float()

    def undo(self, x: Tensor) -> Tensor:
        """Back to the scale of the data."""
        mean, std = (self._like(v, x) for v in (self.mean, self.std))
        return x * std + mean

    @staticmethod
    def _like(values: tuple[float, ...], x: Tensor, kind: torch.dtype = torch.float32) -> Tensor:
        found = torch.tensor(values, dtype=kind, device=x.device)
        return found.reshape(-1, *(1,) * (x.dim() - 2))


def as_float(x: Tensor) -> Tensor:
    """float32; bytes as parts of 255."""
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """A data set as `lb.fit`, `lb.adapt` and `lb.predict` take it.

    Every part is a pair (inputs, targets) of tensors, or a torch Dataset of such examples. Inputs
    are what the network sees: float32 and normalised, or whole numbers where it embeds them.

    Attributes:
        name: Of the reader.
        task: What the targets are: labels [N], 0 or 1 [N], numbers [N, T], labels [N, H, W].
        train: Training part.
        validation: Held out for choices; None without.
        test: Test part; None without.
        classes: Name of every label; empty in regression.
        normalize: How inputs were scaled, for files that come later; None where they were not.
        target_scale: Mean and standard deviation of the training targets by column (regression);
            targets stay in raw units.
        resize: Shorter side of an image file before the input is cut out of its middle; None: as
            small as covers it.
        ignore_index: The label that means "no label".
        extra: Further parts by name: corrupted or foreign test sets, pairs to verify.
    """

    name: str
    task: Task
    train: Any
    validation: Any = None
    test: Any = None
    classes: tuple[str, ...] = ()
    normalize: Normalize | None = None
    target_scale: Normalize | None = None
    resize: int | None = None
    ignore_index: int = -100
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ConfigError(f"task is one of {', '.join(TASKS)}; found {self.task!r}")

    def card(self) -> dict[str, Any]:
        """What a later prediction needs, as plain data."""
        return {
            "name": self.name,
            "task": self.task,
            "classes": list(self.classes),
            "normalize": None if self.normalize is None else asdict(self.normalize),
            "target_scale": None if self.target_scale is None else asdict(self.target_scale),
            "resize": self.resize,
            "ignore_index": self.ignore_index,
        }
