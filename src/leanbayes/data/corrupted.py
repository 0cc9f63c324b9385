"""Corrupted test sets: CIFAR-10-C, CIFAR-100-C and ImageNet-C.

Hendrycks and Dietterich, Benchmarking neural network robustness to common corruptions and
perturbations, 2019. Every corruption comes in five severities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from leanbayes.data.cifar import CIFAR10, CIFAR100, Layout, cifar10, cifar100
from leanbayes.data.dataset import Data, Normalize
from leanbayes.data.decode import Frame
from leanbayes.data.files import Array, find, labels, load_array, subfolders, tensor
from leanbayes.data.folders import class_folders, imagenet
from leanbayes.data.images import IMAGENET, normalised, scale_of, with_extra
from leanbayes.errors import ConfigError, DataError

SEVERITIES = (1, 2, 3, 4, 5)


class ArrayImages(Dataset[tuple[Tensor, Tensor]]):
    """Some rows of an npy of images uint8 [N, H, W, C], read when they are asked for.

    Attributes:
        path: The file; it is mapped into memory, not copied.
        rows: Which of its images.
        labels: Their labels, int64.
        scale: How pixels are normalised.
    """

    def __init__(self, path: Path, rows: range, labels: Tensor, scale: Normalize) -> None:
        self.path, self.rows, self.labels, self.scale = path, rows, labels, scale
        self._mapped: Array | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        row = self.rows[index]
        return self.scale(self._pixels(row, row + 1))[0], self.labels[index]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mapped": None}  # a mapped file would travel as a copy

    def tensors(self) -> tuple[Tensor, Tensor]:
        """All of them at once, normalised: a pair (inputs, labels)."""
        return normalised(self._pixels(self.rows.start, self.rows.stop), self.scale), self.labels

    def _pixels(self, start: int, stop: int) -> Tensor:
        if self._mapped is None:
            self._mapped = load_array(self.path, mapped=True)
        return tensor(self._mapped[start:stop].transpose(0, 3, 1, 2))


def cifar10_c(
    *,
    root: str,
    clean: str | None = None,
    corruptions: Sequence[str] = (),
    severities: Sequence[int] = SEVERITIES,
    normalize: str = "usual",
    validation: int = 5000,
) -> Data:
    """CIFAR-10 under corruptions: extra parts such as "fog-3", from root/fog.npy and labels.npy.

    Args:
        root: Holds the npy files, or CIFAR-10-C with them.
        clean: Where CIFAR-10 is, for the other parts; without it they are empty.
        corruptions: Names of the files to read; none: all.
        severities: From 1 (weak) to 5.
        normalize: As for cifar10; "data" needs clean.
        validation: As for cifar10.
    """
    data = _clean(CIFAR10, cifar10, clean, normalize, validation)
    return with_extra(data, "cifar10_c", _arrays(root, "CIFAR-10-C", data, corruptions, severities))


def cifar100_c(
    *,
    root: str,
    clean: str | None = None,
    corruptions: Sequence[str] = (),
    severities: Sequence[int] = SEVERITIES,
    normalize: str = "usual",
    validation: int = 5000,
) -> Data:
    """CIFAR-100 under corruptions: extra parts such as "fog-3", from root/fog.npy and labels.npy.

    Args:
        root: Holds the npy files, or CIFAR-100-C with them.
        clean: Where CIFAR-100 is, for the other parts; without it they are empty.
        corruptions: Names of the files to read; none: all.
        severities: From 1 (weak) to 5.
        normalize: As for cifar100; "data" needs clean.
        validation: As for cifar100.
    """
    data = _clean(CIFAR100, cifar100, clean, normalize, validation)
    extra = _arrays(root, "CIFAR-100-C", data, corruptions, severities)
    return with_extra(data, "cifar100_c", extra)


def imagenet_c(
    *,
    root: str,
    clean: str | None = None,
    corruptions: Sequence[str] = (),
    severities: Sequence[int] = SEVERITIES,
) -> Data:
    """ImageNet under corruptions: extra parts such as "fog-3", from root/fog/3/<class>/*.

    Args:
        root: Holds one folder a corruption.
        clean: Where ImageNet is, for the other parts and the classes; without it parts are empty.
        corruptions: Names of the folders to read; none: all.
        severities: From 1 (weak) to 5.
    """
    base = find(root, "ImageNet-C", ".", what="ImageNet-C")
    names = _chosen(corruptions, subfolders(base), base)
    folders = {
        f"{name}-{level}": find(base, f"{name}/{level}", what=f"severity {level} of {name}")
        for name in names
        for level in _levels(severities)
    }
    data = imagenet(root=clean) if clean is not None else None
    if data is None:
        classes = sorted({name for folder in folders.values() for name in subfolders(folder)})
        data = Data(
            name="imagenet_c",
            task="classification",
            train=None,
            classes=tuple(classes),
            normalize=IMAGENET,
        )
    frame = Frame.of(224)
    extra = {k: class_folders(v, data.classes, frame, IMAGENET) for k, v in folders.items()}
    return with_extra(data, "imagenet_c", extra)


def _clean(
    layout: Layout, reader: Callable[..., Data], root: str | None, normalize: str, validation: int
) -> Data:
    """The clean images, where their place is known."""
    if root is None:
        return _empty(layout, normalize)
    return reader(root=root, normalize=normalize, validation=validation)


def _empty(layout: Layout, normalize: str) -> Data:
    """Nothing to train on, but how inputs are scaled."""
    if normalize == "data":
        raise ConfigError("normalize='data' needs the training images; write clean='FOLDER'")
    probe = tensor(np.zeros((1, 3, 1, 1), np.uint8))
    return Data(
        name=layout.name,
        task="classification",
        train=None,
        classes=layout.classes,
        normalize=scale_of(normalize, probe, layout.usual),
    )


def _arrays(
    root: str, folder: str, data: Data, corruptions: Sequence[str], severities: Sequence[int]
) -> dict[str, ArrayImages]:
    """The parts, by name: severity s of N images is block s of N / 5."""
    table = find(root, f"{folder}/labels.npy", "labels.npy", what=f"{folder} files")
    base, marks = table.parent, labels(load_array(table), len(data.classes), table)
    files = sorted(p.stem for p in base.glob("*.npy") if p.name != table.name)
    assert data.normalize is not None  # every reader of images gives one
    extra = {}
    for name in _chosen(corruptions, files, base):
        path = base / f"{name}.npy"
        block = _check(load_array(path, mapped=True), len(marks), path) // len(SEVERITIES)
        for level in _levels(severities):
            rows = range((level - 1) * block, level * block)
            own = marks[rows.start : rows.stop] if len(marks) > block else marks
            extra[f"{name}-{level}"] = ArrayImages(path, rows, own, data.normalize)
    return extra


def _check(array: Array, marks: int, path: Path) -> int:
    """The number of images; labels come for all of them, or for one severity."""
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] != 3:
        raise DataError(f"{path} is {array.dtype} {array.shape}; expected uint8 [N, H, W, 3]")
    total = len(array)
    if total == 0 or total % len(SEVERITIES) or marks not in (total, total // len(SEVERITIES)):
        raise DataError(
            f"{path} holds {total} images for {marks} labels; expected five severities of as many "
            "images, and a label each"
        )
    return total


def _chosen(wanted: Sequence[str], there: Sequence[str], base: Path) -> Sequence[str]:
    """The corruptions to read."""
    if isinstance(wanted, str):
        raise ConfigError(f"corruptions is a list of names; write corruptions=[{wanted!r}]")
    missing = [name for name in wanted if name not in there]
    if missing or not there:
        raise DataError(
            f"{base} has no corruption {missing[0] if missing else ''!r}; found "
            f"{', '.join(there) or 'none'}"
        )
    return wanted or there


def _levels(severities: Sequence[int]) -> Sequence[int]:
    if not severities or not set(severities) <= set(SEVERITIES):
        raise ConfigError(f"severities are from 1 to 5, found {list(severities)}")
    return severities
