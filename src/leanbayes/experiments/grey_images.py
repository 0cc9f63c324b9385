"""MNIST and Fashion-MNIST for the experiments: from idx files or an npz file, on the device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from leanbayes.data import READERS, Data
from leanbayes.errors import DataError

SIDE = 28
SMOKE_TRAIN, SMOKE_TEST = 500, 200


def grey_images(name: str, *, root: str, file: str, device: str, smoke: bool) -> Data:
    """Images [N, 1, 28, 28] and labels, all training images in the training part.

    Args:
        name: The reader of the idx files, `mnist` or `fashion_mnist`.
        root: Folder of the idx files, or of the file.
        file: An npz file (.npz or .npz.xz) below the root instead; none if empty.
        device: Where the tensors lie, so that batches are picked there.
        smoke: Take few.
    """
    if file:
        found = READERS["npz"](root=str(Path(root) / file))
    else:
        found = READERS[name](root=root, validation=0)
    if found.test is None or tuple(found.train[0].shape[1:]) != (1, SIDE, SIDE):
        raise DataError(
            f"{file or name}: expected grey images of 28x28 with a test part, found inputs "
            f"{tuple(found.train[0].shape[1:])}{'' if found.test else ' and no test part'}"
        )
    train, test = (SMOKE_TRAIN, SMOKE_TEST) if smoke else (None, None)
    return replace(
        found, train=_first(found.train, train, device), test=_first(found.test, test, device)
    )


def _first(part: Any, count: int | None, device: str) -> tuple[torch.Tensor, ...]:
    return tuple(values[:count].to(device) for values in part)
