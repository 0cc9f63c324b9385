"""Pairs of images to verify: do both show the same?"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from leanbayes.data.dataset import Data, Normalize
from leanbayes.data.decode import decode_images
from leanbayes.data.files import Array, found
from leanbayes.data.images import normalised
from leanbayes.errors import ConfigError, DataError

SUFFIXES = (".jpg", ".jpeg", ".png")


class Pairs(NamedTuple):
    """Which rows are compared, and whether they show the same.

    Attributes:
        first: Row of the first image of each pair, int64 [P].
        second: Row of the second.
        same: Whether both show the same, bool [P].
    """

    first: Tensor
    second: Tensor
    same: Tensor


@dataclass(frozen=True, eq=False)
class ImagePairs:
    """Pairs over images, each of which is stored once.

    `f = lb.predict_features(model, p.images)`, then `lb.verify(f[p.first], f[p.second], p.same)`.

    Attributes:
        images: Distinct images, float32 [N, C, H, W], normalised.
        first: Row of the first image of each pair, int64 [P].
        second: Row of the second.
        same: Whether both show the same, bool [P].
        files: File of every image.
    """

    images: Tensor
    first: Tensor
    second: Tensor
    same: Tensor
    files: tuple[str, ...]


def lfw_pairs(
    *,
    root: str,
    pairs: str = "pairs.txt",
    size: int | Sequence[int] = 112,
    channels: int = 3,
    mean: float = 0.5,
    std: float = 0.5,
) -> Data:
    """Read verification pairs: a pairs.txt of LFW's format over folders of images.

    G. Huang et al., "Labeled Faces in the Wild", 2007. `data.extra["pairs"]` is an `ImagePairs`;
    there is nothing to train on. Memory: one float32 image a file that occurs in a pair (1.2 GB
    for LFW's 7,701 files at size 112).

    Args:
        root: Folder with <name>/<name>_<4 digits>.jpg (or .png).
        pairs: The file, in root or by its own path: `folds` and `pairs a fold and kind`, or the
            latter alone, in the first line; then `name n1 n2` for two images of one name, and
            `name1 n1 name2 n2`.
        size: Side, or (height, width), of the piece cut from the middle after scaling.
        channels: 1 (grey) or 3 (RGB).
        mean: Subtracted from pixels in [0, 1].
        std: Divides them.

    Raises:
        DataError: A file is missing or unreadable, or a line has another form.
    """
    folder = Path(root).expanduser()
    path = folder / pairs if found(root, pairs) else Path(pairs).expanduser()
    listed = read_pairs(path)
    names = sorted({name for first, second, _ in listed for name in (first, second)})
    files = [_file(folder, *name) for name in names]
    pixels, _, bad = decode_images(files, size=size, channels=channels)
    if bad:
        raise DataError(f"{len(bad)} images of {path} cannot be read; the first: {bad[0][1]}")
    scale = Normalize((mean,) * channels, (std,) * channels)
    row = {name: i for i, name in enumerate(names)}
    found_pairs = ImagePairs(
        images=normalised(pixels, scale),
        first=torch.tensor([row[first] for first, _, _ in listed]),
        second=torch.tensor([row[second] for _, second, _ in listed]),
        same=torch.tensor([same for _, _, same in listed]),
        files=tuple(str(file.relative_to(folder)) for file in files),
    )
    return Data(
        name="lfw_pairs",
        task="binary",
        train=None,
        classes=("different", "same"),
        normalize=scale,
        extra={"pairs": found_pairs},
    )


Name = tuple[str, int]


def read_pairs(path: Path) -> list[tuple[Name, Name, bool]]:
    """The pairs of a file in LFW's format: ((name, number), (name, number), same)."""
    if not path.is_file():
        raise DataError(f"{path} is not a file; expected a list of pairs in LFW's format")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a text file: {error}") from error
    rows = [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip()]
    expected = _announced(path, rows[0][1] if rows else [])
    pairs = [_pair(path, number, cells) for number, cells in rows[1:]]
    if len(pairs) != expected:
        raise DataError(f"{path} has {len(pairs)} pairs; its first line announces {expected}")
    return pairs


def pairs_from_labels(labels: Tensor, count: int, seed: int = 0) -> Pairs:
    """`count` distinct pairs of rows, half of one label and half of two, in random order.

    Every pair of a kind is equally likely: pairs are numbered, and numbers are drawn without
    repetition. With rows sorted by label, row i forms a pair of one label with each later row of
    its label, and a pair of two with each row of later labels. Cost: N log N + count.

    Args:
        labels: What each row shows, [N].
        count: Number of pairs; an odd one has one pair more of one label.
        seed: Decides which pairs.

    Raises:
        ConfigError: There are not so many pairs.

    Example:
        >>> pairs = pairs_from_labels(torch.tensor([0, 0, 1, 1]), 4)
        >>> sorted(zip(pairs.same.tolist(), pairs.first.tolist(), pairs.second.tolist()))[2:]
        [(True, 0, 1), (True, 2, 3)]
    """
    if labels.dim() != 1 or count < 2:
        raise ConfigError(
            f"labels {tuple(labels.shape)}, count={count}: expected [N] and 2 or more"
        )
    order = np.argsort(labels.cpu().numpy(), kind="stable")
    ordered = labels.cpu().numpy()[order]
    ends = np.searchsorted(ordered, ordered, side="right")
    rows, generator = np.arange(len(order)), random.Random(seed)
    same = _drawn(rows + 1, ends - rows - 1, count - count // 2, generator, "one label")
    other = _drawn(ends, len(order) - ends, count // 2, generator, "two labels")
    first, second = np.sort(order[np.concatenate([same, other], axis=1)], axis=0)
    mixed = np.array(generator.sample(range(count), count))
    is_same = np.arange(count) < count - count // 2
    return Pairs(*(torch.from_numpy(part[mixed]) for part in (first, second, is_same)))


def _drawn(
    starts: Array, partners: Array, count: int, generator: random.Random, kind: str
) -> Array:
    """`count` of the pairs (i, starts[i] + j), j < partners[i], as [2, count]."""
    upto = np.cumsum(partners)
    total = int(upto[-1])
    if count > total:
        raise ConfigError(f"{count} pairs of {kind} asked for; the labels allow {total}")
    numbers = np.array(generator.sample(range(total), count), dtype=np.int64)
    row = np.searchsorted(upto, numbers, side="right")
    return np.stack([row, starts[row] + numbers - (upto - partners)[row]])


def _announced(path: Path, cells: Sequence[str]) -> int:
    """Pairs that the first line announces: folds x pairs a fold x 2 kinds."""
    if len(cells) not in (1, 2) or not all(cell.isdecimal() for cell in cells):
        raise DataError(
            f"{path}: the first line is {' '.join(cells)!r}; expected the number of folds and of "
            "pairs, such as '10 300', or of pairs alone"
        )
    numbers = [int(cell) for cell in cells]
    return 2 * numbers[-1] * (numbers[0] if len(numbers) == 2 else 1)


def _pair(path: Path, number: int, cells: Sequence[str]) -> tuple[Name, Name, bool]:
    if len(cells) == 3:
        cells = (cells[0], cells[1], cells[0], cells[2])
    if len(cells) != 4 or not (cells[1].isdecimal() and cells[3].isdecimal()):
        raise DataError(
            f"{path}, line {number}: {' '.join(cells)!r}; expected 'name n1 n2' or "
            "'name1 n1 name2 n2'"
        )
    first, second = (cells[0], int(cells[1])), (cells[2], int(cells[3]))
    return first, second, cells[0] == cells[2]


def _file(folder: Path, name: str, number: int) -> Path:
    stem = folder / name / f"{name}_{number:04d}"
    for suffix in SUFFIXES:
        if stem.with_name(stem.name + suffix).is_file():
            return stem.with_name(stem.name + suffix)
    raise DataError(f"{stem}.jpg is missing; expected the images of LFW's layout below {folder}")
