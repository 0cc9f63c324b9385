"""Made-up data of any shape: no files, for a try or to measure what a network costs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leanbayes.data.dataset import Data, Normalize, Task
from leanbayes.errors import ConfigError


def made_up(
    *,
    shape: Sequence[int] = (3, 32, 32),
    task: Task = "classification",
    classes: int = 10,
    rows: int = 64,
    ids: int = 0,
    seed: int = 0,
) -> Data:
    """Noise with labels by chance, in any shape: to see that something runs, and what it costs.

    Args:
        shape: Of an example.
        task: What the targets are.
        classes: Labels of classification and segmentation.
        rows: Training examples; half as many each for validation and test.
        ids: Inputs are whole numbers below this, to be embedded; 0: noise, for images (three
            dimensions) uniform in [0, 1] and then normalised.
        seed: Of the numbers.
    """
    if min((*shape, rows, classes), default=0) < 1 or ids < 0:
        raise ConfigError(
            f"shape, rows and classes are positive and ids is not negative; found shape={shape}, "
            f"rows={rows}, classes={classes}, ids={ids}"
        )
    generator = torch.Generator().manual_seed(seed)
    scale = Normalize((0.5,) * shape[0], (0.25,) * shape[0]) if len(shape) == 3 else None
    scale = None if ids else scale
    x = _inputs((2 * rows, *shape), ids, scale, generator)
    y = _targets(x, task, classes, generator)
    train, held, test = slice(0, rows), slice(rows, rows + rows // 2), slice(rows + rows // 2, None)
    return Data(
        name="made_up",
        task=task,
        train=(x[train], y[train]),
        validation=(x[held], y[held]) if rows > 1 else None,
        test=(x[test], y[test]),
        classes=_classes(task, classes),
        normalize=scale,
        target_scale=Normalize.of(y[train]) if task == "regression" else None,
    )


def _inputs(
    size: tuple[int, ...], ids: int, scale: Normalize | None, generator: torch.Generator
) -> Tensor:
    if ids:
        return torch.randint(ids, size, generator=generator)
    if scale is not None:
        return scale(torch.rand(size, generator=generator))
    return torch.randn(size, generator=generator)


def _targets(x: Tensor, task: Task, classes: int, generator: torch.Generator) -> Tensor:
    if task == "regression":
        return 10 + 3 * torch.randn(len(x), 1, generator=generator)
    size = (len(x), *x.shape[2:]) if task == "segmentation" else (len(x),)
    return torch.randint(2 if task == "binary" else classes, size, generator=generator)


def _classes(task: Task, classes: int) -> tuple[str, ...]:
    if task == "regression":
        return ()
    return ("no", "yes") if task == "binary" else tuple(map(str, range(classes)))
