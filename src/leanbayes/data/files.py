"""What readers have in common: finding files, optional packages, and saying what is wrong."""

from __future__ import annotations

import importlib
import io
import lzma
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leanbayes.errors import ConfigError, DataError

Array = np.ndarray[Any, Any]


def optional(module: str, package: str) -> Any:
    """A module of a package that leanbayes does not depend on.

    Raises:
        ConfigError: It is not installed; says what to type.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"this needs {package}: pip install {package}") from error


def find(root: str | Path, *candidates: str, what: str) -> Path:
    """The first of the candidates (paths below root) that exists.

    Raises:
        DataError: None of them does; says where it was looked for.
    """
    base = Path(root).expanduser()
    if not base.exists():
        raise DataError(f"{base} does not exist; expected the folder that holds {what}")
    for name in candidates:
        if (base / name).exists():
            return base / name
    looked = " or ".join(candidates)
    raise DataError(f"no {what} in {base}: expected {looked}. Give the folder above it as root")


def found(root: str | Path, *candidates: str) -> bool:
    """Whether one of the candidates exists below root."""
    with suppress(DataError):
        return find(root, *candidates, what="file").exists()
    return False


def subfolders(folder: Path) -> list[str]:
    """Names of the folders inside, sorted; hidden ones are left out."""
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def fetch(dataset: str, root: str, *, splits: Sequence[dict[str, Any]]) -> None:
    """Let torchvision download a data set into root, in its layout.

    Raises:
        ConfigError: torchvision is not installed.
        DataError: The download failed.
    """
    loader: Callable[..., Any] = getattr(optional("torchvision.datasets", "torchvision"), dataset)
    try:
        for split in splits:
            loader(root, download=True, **split)
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(f"torchvision could not download {dataset} into {root}: {error}") from error


def load_arrays(path: Path) -> dict[str, Array]:
    """Every array of an npz, also of one that is packed again by xz; never an object.

    Raises:
        DataError: The file is damaged, or holds pickled objects.
    """
    try:
        with path.open("rb") as file:
            packed = path.suffix == ".xz"
            source = io.BytesIO(lzma.decompress(file.read())) if packed else file
            with np.load(source, allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays.files}
    except Exception as error:  # a damaged zip may raise anything
        raise DataError(f"{path} is no npz of plain arrays ({error}); use np.savez") from error


def load_array(path: Path, *, mapped: bool = False) -> Array:
    """The array of an npy; never an object. `mapped` leaves it on disk until it is read."""
    try:
        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except Exception as error:  # a damaged header is parsed as Python text and may raise anything
        raise DataError(f"{path} is no npy of numbers ({error}); write it by np.save") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path} holds several arrays; expected one, written by np.save")
    return array


def tensor(array: Array) -> Tensor:
    """A copy as a tensor, in the machine's byte order."""
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def labels(values: Array | Sequence[int], classes: int, where: str | Path) -> Tensor:
    """Labels as int64 [N], each of 0, ..., classes - 1.

    Raises:
        DataError: They are no whole numbers, or one is out of range; names the first.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "iub" or array.ndim != 1:
        raise DataError(f"labels in {where} are {array.dtype} {array.shape}, expected whole [N]")
    wrong = np.flatnonzero((array < 0) | (array >= classes))
    if len(wrong):
        raise DataError(
            f"label {array[wrong[0]]} of example {wrong[0]} in {where} is out of range: "
            f"expected 0 to {classes - 1}"
        )
    return tensor(array.astype(np.int64))


def check_finite(x: Tensor, where: str | Path) -> None:
    """Refuse NaN and infinity, naming the first example that holds one."""
    bad = (~torch.isfinite(x)).flatten(1).any(1) if x.dim() > 1 else ~torch.isfinite(x)
    if bad.any():
        row = int(bad.nonzero()[0])
        raise DataError(
            f"{int(bad.sum())} of {len(x)} examples in {where} hold NaN or infinity, the first is "
            f"number {row}; remove them or fill in values"
        )


def check_counts(x: Any, y: Any, where: str | Path) -> None:
    """Refuse an empty part, and one with more inputs than labels or the reverse."""
    if len(x) != len(y) or len(x) == 0:
        raise DataError(f"{where} holds {len(x)} inputs and {len(y)} targets; expected one each")
