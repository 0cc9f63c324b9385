"""MNIST and Fashion-MNIST: the idx format, plain or packed by gzip."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, Final, cast

import numpy as np

from leanbayes.data.dataset import Data, Normalize
from leanbayes.data.embedded_sets import FASHION_CLASSES
from leanbayes.data.files import Array, fetch, find, found, labels
from leanbayes.data.images import image_data, images
from leanbayes.errors import DataError

DIGITS: Final = tuple(str(digit) for digit in range(10))
_MNIST: Final = Normalize((0.1307,), (0.3081,))
_FASHION: Final = Normalize((0.2860,), (0.3530,))
_BYTES: Final = 8  # the code of unsigned bytes


def mnist(
    *, root: str, validation: int = 5000, normalize: str = "usual", download: bool = False
) -> Data:
    """Handwritten digits, 28x28 grey, 60,000 + 10,000 (idx files, torchvision's layout).

    Args:
        root: Holds the four idx files, or MNIST/raw with them.
        validation: Training examples held out, the last ones.
        normalize: "usual", "data" or "none".
        download: Let torchvision fetch missing files.
    """
    folder = _folder(root, "MNIST", download=download)
    return _read(folder, "mnist", DIGITS, validation, normalize, _MNIST)


def fashion_mnist(
    *, root: str, validation: int = 5000, normalize: str = "usual", download: bool = False
) -> Data:
    """Pictures of clothes, 28x28 grey, 60,000 + 10,000 (idx files, torchvision's layout).

    Args:
        root: Holds the four idx files, or FashionMNIST/raw with them.
        validation: Training examples held out, the last ones.
        normalize: "usual", "data" or "none".
        download: Let torchvision fetch missing files.
    """
    folder = _folder(root, "FashionMNIST", download=download)
    return _read(folder, "fashion_mnist", FASHION_CLASSES, validation, normalize, _FASHION)


def _folder(root: str, name: str, *, download: bool) -> Path:
    """The folder with the files: root itself or torchvision's."""
    probe = [f"{base}train-images-idx3-ubyte" for base in ("", f"{name}/raw/", "raw/")]
    probe += [f"{path}.gz" for path in probe]
    if download and not found(root, *probe):
        fetch(name, root, splits=[{"train": True}])
    return find(root, *probe, what=f"{name} idx files").parent


def _read(
    folder: Path,
    name: str,
    classes: tuple[str, ...],
    validation: int,
    normalize: str,
    usual: Normalize,
) -> Data:
    parts = {}
    for part in ("train", "t10k"):
        pixels = _file(folder, f"{part}-images-idx3-ubyte")
        marks = _file(folder, f"{part}-labels-idx1-ubyte")
        y = labels(read_idx(marks, 1), len(classes), marks)
        parts[part] = images(read_idx(pixels, 3), pixels), y
    return image_data(
        name=name,
        train=parts["train"],
        test=parts["t10k"],
        classes=classes,
        validation=validation,
        normalize=normalize,
        usual=usual,
    )


def _file(folder: Path, name: str) -> Path:
    return find(folder, name, f"{name}.gz", what=name)


def read_idx(path: Path, dims: int) -> Array:
    """Bytes [N, ...] of an idx file: two zeros, a type code, the number of dims, sizes, data.

    Raises:
        DataError: Another format, type or number of dims; shorter or longer than its header says.
    """
    try:
        with cast(IO[bytes], gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as file:
            head = file.read(4)
            sizes = file.read(4 * dims)
            if head != bytes((0, 0, _BYTES, dims)) or len(sizes) < 4 * dims:
                raise DataError(
                    f"{path} starts with {head.hex(' ') or 'nothing'}; expected the idx header "
                    f"00 00 08 {dims:02x} of unsigned bytes in {dims} dimensions"
                )
            shape = struct.unpack(f">{dims}I", sizes)
            data = file.read(math.prod(shape) + 1)  # one more shows a file that is too long
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); fetch it again") from error
    except (OverflowError, MemoryError) as error:
        raise DataError(f"the header of {path} claims impossible sizes {shape}") from error
    if len(data) != math.prod(shape):
        more = "more" if len(data) > math.prod(shape) else f"{len(data):,}"
        raise DataError(f"{path} holds {more} bytes; its header says {math.prod(shape):,}")
    return np.frombuffer(data, np.uint8).reshape(shape)
