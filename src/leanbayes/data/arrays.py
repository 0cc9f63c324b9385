"""Arrays of your own in an npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from leanbayes.data.dataset import Data, Normalize
from leanbayes.data.files import (
    Array,
    check_counts,
    check_finite,
    labels,
    load_arrays,
    tensor,
)
from leanbayes.data.images import held_out, images, normalised, scale_of
from leanbayes.errors import ConfigError, DataError

MOST_CLASSES: Final = 1000  # that data may have however few their examples


class Pair(NamedTuple):
    """Inputs and targets of a part, checked."""

    x: Tensor
    y: Tensor


def npz(
    *,
    root: str,
    validation: int = 0,
    test: int = 0,
    classes: tuple[str, ...] = (),
    normalize: str = "data",
    layout: str = "auto",
) -> Data:
    """Arrays of your own: x_train, y_train, x_test, y_test (also x_val, y_val), or x and y.

    x alone is foreign data: a test part of inputs without targets, and nothing to train on.

    Inputs: images uint8 or floating [N, H, W], [N, H, W, C], [N, C, H, W]; tables floating [N, F];
    ids whole [N, L]. Targets: whole [N] (classes) or floating [N], [N, T] (regression). A class
    name array `classes` in the file is used where it is there.

    Args:
        root: The file (.npz or .npz.xz), or a folder with one such file.
        validation: Training examples held out, the last ones.
        test: Examples of x and y that are the test part, the last ones.
        classes: Name of every label; without, their numbers.
        normalize: "data", "imagenet" or "none"; ids are left as they are.
        layout: Of four dimensions: "NHWC", "NCHW", or "auto".
    """
    path = _file(root)
    arrays = load_arrays(path)
    if "x" in arrays and not arrays.keys() & {"y", "x_train"}:
        return _inputs_alone(arrays["x"], path, normalize, layout)
    names = _classes(arrays, classes, path)
    parts = {
        part: Pair(_inputs(x, f"x of the {part} part in {path}", layout), _targets(y, names, path))
        for part, (x, y) in _parts(arrays, test, path).items()
    }
    for part, pair in parts.items():
        check_counts(pair.x, pair.y, where=f"the {part} part in {path}")
        _check_like(pair.x, parts["train"].x, part, path)
    return _data(parts, names, validation, normalize)


def _inputs_alone(x: Array, path: Path, normalize: str, layout: str) -> Data:
    found = _inputs(x, f"x in {path}", layout)
    if not len(found):
        raise DataError(f"x in {path} holds no examples")
    scale = None if found.dtype == torch.int64 else scale_of(normalize, found)
    test = found if scale is None else normalised(found, scale)
    return Data(name="npz", task="classification", train=None, test=test, normalize=scale)


def _file(root: str) -> Path:
    path = Path(root).expanduser()
    if path.is_file():
        return path
    if not path.is_dir():
        raise DataError(f"no file or folder at {path}; expected root to be an npz, or hold one")
    files = sorted(path.glob("*.npz")) + sorted(path.glob("*.npz.xz"))
    if len(files) != 1:
        raise DataError(f"{path} has {len(files)} npz files; expected root to be one, or hold one")
    return files[0]


def _parts(arrays: dict[str, Array], test: int, path: Path) -> dict[str, tuple[Array, Array]]:
    keys = {part: (f"x_{part}", f"y_{part}") for part in ("train", "val", "test")}
    found = {part: (arrays[x], arrays[y]) for part, (x, y) in keys.items() if {x, y} <= set(arrays)}
    if "train" in found:
        if test:
            raise ConfigError(f"{path} has a test part of its own; write test=0")
        return found
    if not {"x", "y"} <= set(arrays):
        raise DataError(
            f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; expected x_train, y_train, "
            "x_test, y_test, or x and y"
        )
    x, y = arrays["x"], arrays["y"]
    check_counts(x, y, where=path)
    kept, out = (rows.numpy() for rows in held_out(_order(y), test))
    return {"train": (x[kept], y[kept])} | ({"test": (x[out], y[out])} if test else {})


def _order(y: Array) -> Tensor:
    """Targets as `held_out` looks at them: only labels may be sorted by class."""
    whole = y.ndim == 1 and y.dtype.kind in "iub"
    return tensor(y.astype(np.int64)) if whole else torch.zeros(len(y), 1)


def _inputs(x: Array, where: str, layout: str) -> Tensor:
    whole = x.dtype.kind in "iu" and x.dtype != np.uint8
    if whole and x.ndim > 2:
        raise DataError(
            f"{where} is {x.dtype} {x.shape}; expected ids [N, L], or images in bytes (uint8) or "
            "floating point"
        )
    if whole or x.ndim == 2:
        found = tensor(x.astype(np.int64 if whole else np.float32)) if _plain(x) else None
    else:
        found = images(x, where, layout)
    if found is None:
        raise DataError(f"{where} is {x.dtype} {x.shape}; expected numbers")
    if found.is_floating_point():
        check_finite(found, where)
        return found.float()
    return found


def _plain(x: Array) -> bool:
    return x.dtype.kind in "iuf" and x.ndim >= 2


def _targets(y: Array, classes: tuple[str, ...], path: Path) -> Tensor:
    if y.dtype.kind == "f" and y.ndim in (1, 2):
        found = tensor(y.astype(np.float32)).reshape(len(y), -1)
        check_finite(found, f"targets in {path}")
        return found
    return labels(y, len(classes), path)


def _classes(arrays: dict[str, Array], classes: tuple[str, ...], path: Path) -> tuple[str, ...]:
    """Names as given, or in the file, or the numbers up to the largest label of training."""
    if classes or "classes" in arrays:
        return tuple(map(str, classes or arrays["classes"].tolist()))
    y = arrays.get("y_train", arrays.get("y"))
    if y is None or y.dtype.kind not in "iub":
        return ()
    if y.ndim != 1 or not len(y):
        raise DataError(f"labels in {path} have shape {y.shape}; expected [N]")
    if int(y.max()) >= max(len(y), MOST_CLASSES):
        raise DataError(
            f"targets in {path} are whole and as large as {y.max()}, for {len(y)} examples: number "
            "classes from 0, or write what is to be predicted as a number in floating point"
        )
    return tuple(str(label) for label in range(int(y.max()) + 1))


def _check_like(x: Tensor, train: Tensor, part: str, path: Path) -> None:
    if x.shape[1:] != train.shape[1:] or x.dtype != train.dtype:
        raise DataError(
            f"the {part} part in {path} has inputs {x.dtype} {tuple(x.shape[1:])}, the training "
            f"part {train.dtype} {tuple(train.shape[1:])}; expected the same"
        )


def _data(
    parts: dict[str, Pair], classes: tuple[str, ...], validation: int, normalize: str
) -> Data:
    if validation and "val" in parts:
        raise ConfigError("the file has a validation part of its own; write validation=0")
    regression = parts["train"].y.is_floating_point()
    if validation:
        x, y = parts["train"]
        kept, out = held_out(torch.zeros(len(y), 1) if regression else y, validation)
        parts = parts | {"train": Pair(x[kept], y[kept]), "val": Pair(x[out], y[out])}
    x, y = parts["train"]
    scale = None if x.dtype == torch.int64 else scale_of(normalize, x)
    ready: dict[str, Any] = {
        name: pair if scale is None else (normalised(pair.x, scale), pair.y)
        for name, pair in parts.items()
    }
    return Data(
        name="npz",
        task="regression" if regression else "classification",
        train=ready["train"],
        validation=ready.get("val"),
        test=ready.get("test"),
        classes=() if regression else classes,
        normalize=scale,
        target_scale=Normalize.of(y) if regression else None,
    )
