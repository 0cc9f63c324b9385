"""What `leanbayes predict` reads: image files and folders, npz, CSV and parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from leanbayes.cli.card import Card
from leanbayes.errors import ConfigError, DataError

if TYPE_CHECKING:
    from leanbayes.data.tables import Column

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
TABLES = (".csv", ".parquet")
MOST = 16.0  # of pixels of floating images; what is above is no rounding and no overshoot
KEYS = ("x", "x_test", "inputs")  # of an npz, in this order


@dataclass
class Inputs:
    """Pieces of inputs as the network takes them, each with the names of its rows.

    Attributes:
        card: Of the run: shape, type and scale.
        paths: What was given.
        rows: Rows of a piece of files.
        skipped: Files that could not be read, with the reason; filled while reading.
        notes: What was read in another way than it may have been meant; filled while reading.
    """

    card: Card
    paths: Sequence[Path]
    rows: int = 256
    skipped: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[list[str], Tensor]]:
        for path in self.paths:
            kind = path.suffix.lower()  # as `check_paths` lets it in
            if kind in (".npz", *TABLES) and path.is_file():
                values = self._array(path) if kind == ".npz" else self._table(path)
                yield from self._cut(path, self._checked(path, values))
        files = [file for path in self.paths for file in _images(path)]
        for start in range(0, len(files), self.rows):
            names, pixels = self._decoded(files[start : start + self.rows])
            if names:
                yield names, self.card.prepared(pixels)

    def _cut(self, path: Path, values: Tensor) -> Iterator[tuple[list[str], Tensor]]:
        for start in range(0, len(values), self.rows):
            piece = self.card.prepared(values[start : start + self.rows])
            yield [f"{path}:{start + at}" for at in range(len(piece))], piece

    def _decoded(self, files: Sequence[Path]) -> tuple[list[str], Tensor]:
        from leanbayes.data.decode import decode_images

        shape = self.card.shape
        if len(shape) != 3 or shape[0] not in (1, 3):
            size = "x".join(map(str, shape))
            raise DataError(f"{files[0]} is an image, but the run's inputs are {size}: give .npz")
        self._check_bytes(files[0])
        data = self.card.data
        whole = data.get("task") == "segmentation"  # as its readers: every pixel gets a label
        how = {"whole": True} if whole else {"resize": data.get("resize")}
        pixels, good, bad = decode_images(files, size=shape[1:], channels=shape[0], **how)
        self.skipped += [(str(p), why.removeprefix(f"{p} ")) for p, why in bad]
        return [str(path) for path in good], pixels

    def _array(self, path: Path) -> Tensor:
        from leanbayes.data.files import load_arrays
        from leanbayes.data.images import images

        arrays = load_arrays(path)
        key = next((k for k in KEYS if k in arrays), next(iter(arrays), None))
        if key is None or (len(arrays) > 1 and key not in KEYS):
            raise DataError(f"{path} holds {sorted(arrays)}; expected inputs under 'x'")
        values = arrays[key]
        if len(self.card.shape) == 3 and not self.card.whole:
            own = values.shape[1:] == self.card.shape
            return self._in_range(path, images(values, path, "NCHW" if own else "auto"))
        if values.dtype.kind not in "uif":
            raise DataError(f"{path}: {key!r} holds {values.dtype}; expected numbers")
        # Bytes are parts of 255 in images alone: those of a table are numbers, as in training.
        whole = "float64" if values.dtype.kind == "f" else "int64"
        return torch.from_numpy(values.astype(whole if self.card.whole else "float32"))

    def _in_range(self, path: Path, values: Tensor) -> Tensor:
        """Images on the scale of the run's, as far as that can be told."""
        scale = self.card.normalize
        if values.dtype == torch.uint8:
            self._check_bytes(path)
        elif self.card.bytes_fit and scale is not None and any(scale.mean) and len(values):
            most = float(values.amax())
            if most >= MOST:
                self.notes.append(
                    f"{path}: pixels of up to {most:g}, but those of the run lie between 0 and 1: "
                    "divide bytes that are kept as numbers by 255"
                )
        return values

    def _check_bytes(self, path: Path) -> None:
        if not self.card.bytes_fit:
            raise DataError(
                f"{path} holds bytes, which count as parts of 255, but the images of the run were "
                "numbers beyond 0 and 1: give .npz with such numbers, or train on bytes (uint8)"
            )

    def _table(self, path: Path) -> Tensor:
        from leanbayes.data.table_again import columns_of
        from leanbayes.data.tables import Column, encoded, read_cells

        options = self.card.data.get("options") or {}
        advice = "as the table of the run: write this one so too"
        cells = read_cells(path, str(options.get("delimiter", ",")), advice)
        columns: Sequence[Column] = [Column(name) for name in cells]
        if isinstance(self.card.data.get("columns"), list):
            columns = columns_of(self.card.data, path, cells)
        self._look_at_words(path, columns, cells)
        try:
            numbers = torch.from_numpy(encoded(columns, cells))
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        return self._without_gaps(numbers) if self._filled else numbers

    @property
    def _filled(self) -> bool:
        """Whether the training filled gaps of its table by the mean."""
        return (self.card.data.get("options") or {}).get("missing") == "mean"

    def _without_gaps(self, numbers: Tensor) -> Tensor:
        """The training means in the gaps of a table [N, inputs]."""
        scale = self.card.normalize
        assert scale is not None  # as every table has
        return torch.where(numbers.isnan(), torch.tensor(scale.mean, dtype=numbers.dtype), numbers)

    def _look_at_words(
        self, path: Path, columns: Sequence[Column], cells: Mapping[str, list[str]]
    ) -> None:
        """Cells that are none of a column's categories give zeros, and nothing else would tell."""
        from leanbayes.data.table_again import new_words
        from leanbayes.data.tables import MISSING

        for column in (each for each in columns if each.categories and not self._filled):
            found = cells[column.name]
            missing = [c for c in found if c not in column.categories and c.lower() in MISSING]
            if missing:
                row = found.index(missing[0]) + 1
                raise DataError(f"{path}: row {row} of column {column.name!r} is missing")
        self.notes += new_words(path, columns, cells)

    def _checked(self, path: Path, values: Tensor) -> Tensor:
        """Rows of the run's shape, all of them finite."""
        if tuple(values.shape[1:]) != self.card.shape:
            found, wanted = ("x".join(map(str, s)) for s in (values.shape[1:], self.card.shape))
            raise DataError(f"{path} holds rows of {found}; the run's inputs are {wanted}")
        if self.card.whole and not bool((values == values.round()).all()):
            raise DataError(f"{path} holds numbers that are not whole; the run's inputs are")
        if values.is_floating_point():
            wrong = (~values.float().isfinite()).flatten(1).any(1).nonzero().flatten()
            if len(wrong):
                raise DataError(
                    f"{path}: {len(wrong)} of {len(values)} rows hold numbers that are infinite or "
                    f"missing, the first is row {int(wrong[0])} (counted from 0)"
                )
        return values


def check_paths(paths: Sequence[Path]) -> None:
    """Say at once which inputs are not there or of no known kind."""
    for path in paths:
        if not path.exists():
            raise DataError(f"no file or folder at {path}")
        known = path.is_dir() or path.suffix.lower() in (*IMAGES, ".npz", *TABLES)
        if not known:
            raise ConfigError(
                f"{path} is of no kind that is read: expected images, a folder of images, .npz, "
                ".csv or .parquet"
            )
        if path.is_dir() and not _images(path):
            raise DataError(f"{path} holds no images ({', '.join(IMAGES)})")


def _images(path: Path) -> list[Path]:
    """Image files at a path, of a folder those below it, in the order of their names.

    Hidden ones, and those in hidden folders, are no images, as in training. A link to nothing is
    there to be told of.
    """
    if path.is_dir():
        found = (p for p in path.rglob("[!.]*") if p.suffix.lower() in IMAGES and not p.is_dir())
        return sorted(p for p in found if "/." not in f"/{p.relative_to(path).as_posix()}")
    return [path] if path.suffix.lower() in IMAGES else []
