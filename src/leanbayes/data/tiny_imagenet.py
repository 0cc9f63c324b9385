"""Tiny ImageNet in its official layout."""

from __future__ import annotations

from pathlib import Path

import torch

from leanbayes.data.dataset import Data
from leanbayes.data.files import find, subfolders
from leanbayes.data.folders import ImageFiles, class_folders, folder_data
from leanbayes.data.images import IMAGENET
from leanbayes.errors import DataError


def tiny_imagenet(*, root: str, validation: int = 10_000, in_memory: bool = False) -> Data:
    """Two hundred classes of ImageNet at 64x64, 100,000 + 10,000 (needs Pillow).

    The official validation part is the test part, as the official test part has no labels.

    Args:
        root: Holds train, val and words.txt, or tiny-imagenet-200 with them.
        validation: Training examples held out, the same number of each class.
        in_memory: Decode all files once (5 GB) instead of at every use.
    """
    base = find(root, "tiny-imagenet-200/train", "train", what="Tiny ImageNet").parent
    ids = subfolders(base / "train")
    parts = {
        "train": class_folders(base / "train", ids, None, IMAGENET),
        "test": _annotated(base / "val", ids),
    }
    return folder_data("tiny_imagenet", parts, _names(base, ids), validation, in_memory)


def _annotated(folder: Path, ids: list[str]) -> ImageFiles:
    """val/images/* with labels by val/val_annotations.txt: file, id and box, apart by tabs."""
    table = find(folder, "val_annotations.txt", what="labels of Tiny ImageNet's val part")
    number = {name: label for label, name in enumerate(ids)}
    paths, labels = [], []
    for row, line in enumerate(table.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.split("\t")
        if len(fields) < 2 or fields[1] not in number:
            raise DataError(
                f"line {row} of {table} is {line[:60]!r}; expected a file and one of the "
                f"{len(ids)} class ids, apart by tabs"
            )
        paths.append(str(folder / "images" / fields[0]))
        labels.append(number[fields[1]])
    if not paths:
        raise DataError(f"{table} is empty; expected a line a picture")
    return ImageFiles(paths, torch.tensor(labels), None, IMAGENET)


def _names(base: Path, ids: list[str]) -> tuple[str, ...]:
    """The first word of every id by words.txt, the id itself where there is none."""
    table = base / "words.txt"
    lines = table.read_text(encoding="utf-8").splitlines() if table.is_file() else []
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    return tuple(words.get(name, name).split(",")[0].strip() for name in ids)
