"""Street View House Numbers: MATLAB files of version 5."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import Tensor

from leanbayes.data.dataset import Data, Normalize
from leanbayes.data.files import fetch, find, found, labels, optional, tensor
from leanbayes.data.idx import DIGITS
from leanbayes.data.images import image_data
from leanbayes.errors import DataError

_USUAL: Final = Normalize((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))
_FILES: Final = {"train": "train_32x32.mat", "test": "test_32x32.mat"}


def svhn(
    *, root: str, validation: int = 5000, normalize: str = "usual", download: bool = False
) -> Data:
    """House numbers, one digit in the middle, 32x32 colour, 73,257 + 26,032 (needs scipy).

    Args:
        root: Holds train_32x32.mat and test_32x32.mat.
        validation: Training examples held out, the last ones.
        normalize: "usual", "imagenet", "data" or "none".
        download: Let torchvision fetch missing files.
    """
    if download and not all(found(root, file) for file in _FILES.values()):
        fetch("SVHN", root, splits=[{"split": part} for part in _FILES])
    parts = {part: _part(find(root, file, what="SVHN")) for part, file in _FILES.items()}
    return image_data(
        name="svhn",
        train=parts["train"],
        test=parts["test"],
        classes=DIGITS,
        validation=validation,
        normalize=normalize,
        usual=_USUAL,
    )


def _part(path: Path) -> tuple[Tensor, Tensor]:
    """X, uint8 [32, 32, 3, N], and y [N, 1] with 10 for the digit 0."""
    stored = _load(path)
    if not {"X", "y"} <= stored.keys():
        raise DataError(f"{path} lacks X and y; expected the cropped digits (32x32) of SVHN")
    x, y = stored["X"], np.asarray(stored["y"])
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[2] != 3 or y.size != x.shape[3]:
        raise DataError(
            f"{path} holds X {x.dtype} {x.shape} and y {y.shape}; expected uint8 [32, 32, 3, N] "
            "and [N, 1]"
        )
    marks = y.reshape(-1)
    if marks.dtype.kind not in "iub":  # files written by MATLAB hold doubles
        marks = _whole(marks, path)
    digits = np.where(marks == 10, 0, np.where(marks == 0, -1, marks.astype(np.int64)))
    return tensor(x.transpose(3, 2, 0, 1)), labels(digits, 10, path)


def _whole(marks: Any, path: Path) -> Any:
    if not np.array_equal(marks, np.rint(marks)):
        raise DataError(f"labels in {path} are no whole numbers; expected 1 to 10")
    return marks.astype(np.int64)


def _load(path: Path) -> dict[str, Any]:
    loadmat = optional("scipy.io", "scipy").loadmat
    try:
        return dict(loadmat(str(path)))
    except Exception as error:  # a damaged file may raise anything
        raise DataError(
            f"{path} is no MATLAB file of version 5 ({error}); fetch it again"
        ) from error
