"""Folders of image files, one folder a class; files are decoded when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from leanbayes.data.dataset import Data, Normalize
from leanbayes.data.decode import SUFFIXES, Frame, check_size, decode
from leanbayes.data.files import find, subfolders
from leanbayes.data.images import IMAGENET, held_out, normalised
from leanbayes.errors import ConfigError, DataError


class ImageFiles(Dataset[tuple[Tensor, Tensor]]):
    """Examples (image float32 [C, H, W], label int64 []) that are decoded one by one.

    Attributes:
        paths: Files.
        labels: int64 [N].
        frame: How they become equal in size; None: they must be.
        scale: How pixels are normalised.
    """

    def __init__(
        self, paths: Sequence[str], labels: Tensor, frame: Frame | None, scale: Normalize
    ) -> None:
        self.paths, self.labels, self.frame, self.scale = paths, labels, frame, scale
        self._first: Tensor | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.scale(self.pixels(index)[None])[0], self.labels[index]

    def pixels(self, index: int) -> Tensor:
        """The bytes of one picture, [C, H, W]."""
        channels = len(self.scale.mean)
        image = decode(self.paths[index], self.frame, channels)
        if self.frame is None:
            if self._first is None:
                self._first = decode(self.paths[0], None, channels)
            check_size(image, self._first, self.paths[index])
        return image

    def part(self, rows: Tensor) -> ImageFiles:
        """Some of the examples."""
        paths = [self.paths[row] for row in rows.tolist()]
        return ImageFiles(paths, self.labels[rows], self.frame, self.scale)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """All of them at once, decoded and normalised: a pair (inputs, labels)."""
        stacked = torch.stack([self.pixels(index) for index in range(len(self))])
        return normalised(stacked, self.scale), self.labels


def image_folder(  # noqa: PLR0913 - one keyword an option
    *,
    root: str,
    size: int | Sequence[int] | None = None,
    resize: int | None = None,
    channels: int = 3,
    validation: int = 0,
    normalize: str = "imagenet",
    in_memory: bool = False,
) -> Data:
    """Your own images: root/train/<class>/*, and root/val, root/test (needs Pillow).

    With val and test, val is the validation part; with one of them, it is the test part.

    Args:
        root: Holds the folder train, and val (or valid, validation), test, or both.
        size: Side, or (height, width), of the piece cut from the middle; none: all are equal.
        resize: Shorter side before cutting; none: as small as covers the piece.
        channels: 1 (grey) or 3 (colour).
        validation: Training examples held out, spread over the classes.
        normalize: "imagenet" (grey: 0.5, 0.5), "half" (0.5, 0.5) or "none".
        in_memory: Decode all files once (4 bytes a value) instead of at every use.
    """
    scale, frame = fixed_scale(normalize, channels), Frame.of(size, resize)
    train = find(root, "train", what="image folders")
    classes = tuple(subfolders(train))
    parts = {"train": class_folders(train, classes, frame, scale)}
    for name, options in {"val": ("val", "valid", "validation"), "test": ("test",)}.items():
        folder = next((train.with_name(o) for o in options if train.with_name(o).is_dir()), None)
        if folder is not None:
            parts[name] = class_folders(folder, classes, frame, scale)
    return folder_data("image_folder", parts, classes, validation, in_memory)


def imagenet(*, root: str, validation: int = 0, size: int = 224, resize: int = 256) -> Data:
    """ImageNet: root/train/<class>/*, root/val/<class>/* (needs Pillow).

    The shorter side is resized to 256 and 224x224 are cut from the middle; val is the test part.

    Args:
        root: Holds train and val with one folder a class.
        validation: Training examples held out, spread over the classes.
        size: Side of the piece cut from the middle.
        resize: Shorter side before cutting.
    """
    frame = Frame.of(size, resize)
    train, val = (find(root, part, what="ImageNet") for part in ("train", "val"))
    classes = tuple(subfolders(train))
    parts = {
        "train": class_folders(train, classes, frame, IMAGENET),
        "test": class_folders(val, classes, frame, IMAGENET),
    }
    return folder_data("imagenet", parts, classes, validation, in_memory=False)


def fixed_scale(normalize: str, channels: int) -> Normalize:
    """Constants that need no look at the pixels."""
    half = Normalize((0.5,) * channels, (0.5,) * channels)
    options = {
        "imagenet": IMAGENET if channels == 3 else half,
        "half": half,
        "none": Normalize((0.0,) * channels, (1.0,) * channels),
    }
    if normalize not in options:
        raise ConfigError(f"normalize is one of {', '.join(options)}; found {normalize!r}")
    return options[normalize]


def class_folders(
    folder: Path, classes: Sequence[str], frame: Frame | None, scale: Normalize
) -> ImageFiles:
    """The files of a folder with one folder a class, sorted.

    Raises:
        DataError: A folder that is no class, a part without a picture.
    """
    foreign = sorted(set(subfolders(folder)) - set(classes))
    if foreign:
        raise DataError(f"{folder} has the class {foreign[0]!r}, which the training part lacks")
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        files = image_files(folder / name)
        paths += files
        labels += [label] * len(files)
    if not paths:
        raise DataError(
            f"no pictures in {folder}: expected {folder.name}/<class>/<picture> with one of "
            f"{', '.join(sorted(SUFFIXES))}"
        )
    return ImageFiles(paths, torch.tensor(labels), frame, scale)


def image_files(folder: Path) -> list[str]:
    """Paths of the pictures in a folder and the folders below, sorted; none if it is missing.

    Hidden files and folders are left out: thumbnails and copies of pictures lie there.
    """
    found: list[str] = []
    for base, below, names in os.walk(folder):
        below[:] = [name for name in below if not name.startswith(".")]
        seen = [name for name in names if not name.startswith(".")]
        found += [str(Path(base) / n) for n in seen if Path(n).suffix.lower() in SUFFIXES]
    return sorted(found)


def folder_data(
    name: str,
    parts: dict[str, ImageFiles],
    classes: tuple[str, ...],
    validation: int,
    in_memory: bool,
) -> Data:
    """The Data of parts "train", and "val" or "test" or both."""
    train, test, val = parts["train"], parts.get("test"), parts.get("val")
    if test is None:
        test, val = val, None
    if validation and val is not None:
        raise ConfigError(f"{name} has a validation part of its own; write validation=0")
    if validation:
        kept, out = held_out(train.labels, validation)
        train, val = train.part(kept), train.part(out)

    def ready(part: ImageFiles | None) -> Any:
        return part.tensors() if in_memory and part is not None else part

    return Data(
        name=name,
        task="classification",
        train=ready(train),
        validation=ready(val),
        test=ready(test),
        classes=classes,
        normalize=train.scale,
        resize=None if train.frame is None else train.frame.resize,
    )
