"""From bytes and labels to the parts of an image data set: split, normalised, checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from leanbayes.data.dataset import Data, Normalize
from leanbayes.data.files import Array, check_counts, tensor
from leanbayes.errors import ConfigError, DataError

IMAGENET: Final = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
LAYOUTS: Final = ("auto", "NHWC", "NCHW")
_CHANNELS: Final = (1, 3, 4)
_ROWS: Final = 4096  # normalised at a time: memory for one copy of the set, not for three


def image_data(  # noqa: PLR0913 - one keyword a part
    *,
    name: str,
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor] | None,
    classes: tuple[str, ...],
    validation: int = 0,
    normalize: str = "data",
    usual: Normalize | None = None,
) -> Data:
    """The Data of images in memory (bytes or floating) with labels; pixels end as float32.

    Args:
        name: Of the reader.
        train: Images [N, C, H, W] and labels [N].
        test: As train.
        classes: Name of every label.
        validation: Examples of the training part that are held out; see `held_out`.
        normalize: See `scale_of`.
        usual: Published constants of this set.
    """
    for part, where in ((train, "train"), (test, "test")):
        if part is not None:
            check_counts(*part, where=f"the {where} part of {name}")
    kept, out = held_out(train[1], validation)
    scale = scale_of(normalize, train[0][kept] if normalize == "data" else train[0], usual)
    return Data(
        name=name,
        task="classification",
        train=_part(train, kept, scale),
        validation=_part(train, out, scale) if validation else None,
        test=None if test is None else (normalised(test[0], scale), test[1]),
        classes=classes,
        normalize=scale,
    )


def _part(pair: tuple[Tensor, Tensor], rows: Tensor, scale: Normalize) -> tuple[Tensor, Tensor]:
    return normalised(pair[0][rows], scale), pair[1][rows]


def held_out(labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows for validation: the last `count` ones.

    Where labels come sorted, the last rows would all be of one class; then every so-manieth row is
    held out instead, which gives each class its share.

    Example:
        >>> held_out(torch.tensor([1, 0, 1, 0]), 1)[1]
        tensor([3])
        >>> held_out(torch.tensor([0, 0, 0, 1, 1, 1]), 2)[1]
        tensor([1, 4])
    """
    total = len(labels)
    if not 0 <= count < total:
        raise ConfigError(
            f"validation={count} does not fit {total} training examples; write a number from 0 to "
            f"{total - 1}"
        )
    out = torch.arange(total - count, total)
    if count and labels.dim() == 1 and bool((labels.diff() >= 0).all()):
        out = (torch.arange(count) * 2 + 1) * total // (2 * count)
    keep = torch.ones(total, dtype=torch.bool)
    keep[out] = False
    return keep.nonzero().flatten(), out


def scale_of(normalize: str, x: Tensor, usual: Normalize | None = None) -> Normalize:
    """How inputs [N, C, ...] are scaled.

    Args:
        normalize: "usual" (published constants of the set), "data" (mean and standard deviation of
            the training part), "imagenet" (ImageNet's constants), "none" (parts of 255 only).
        x: The training inputs.
        usual: The published constants.
    """
    channels = x.shape[1]
    options: dict[str, Normalize | None] = {
        "usual": usual,
        "imagenet": IMAGENET,
        "none": Normalize((0.0,) * channels, (1.0,) * channels),
    }
    scale = statistics(x) if normalize == "data" else options.get(normalize)
    if scale is None:
        known = [name for name, value in options.items() if value is not None]
        raise ConfigError(f"normalize is one of data, {', '.join(known)}; found {normalize!r}")
    if len(scale.mean) != channels:
        raise ConfigError(
            f"normalize={normalize!r} has constants for {len(scale.mean)} channels, the images "
            f"have {channels}; write normalize='data'"
        )
    return scale


def statistics(x: Tensor) -> Normalize:
    """Mean and standard deviation by channel; of bytes from a histogram, exact and without a copy.

    With h_v the share of value v: mean = sum_v h_v v / 255, var = sum_v h_v (v / 255 - mean)^2.
    """
    if x.dtype != torch.uint8:
        return Normalize.of(x)
    values = torch.arange(256, dtype=torch.float64) / 255
    means, stds = [], []
    for channel in x.unbind(1):
        share = torch.bincount(channel.flatten(), minlength=256).double() / channel.numel()
        means.append(float(share @ values))
        stds.append(float((share @ (values - means[-1]).square()).sqrt()) or 1.0)
    return Normalize(tuple(means), tuple(stds))


def normalised(x: Tensor, scale: Normalize) -> Tensor:
    """`scale(x)`, some rows at a time."""
    out = torch.empty(x.shape, dtype=torch.float32)
    for start in range(0, len(x), _ROWS):
        out[start : start + _ROWS] = scale(x[start : start + _ROWS])
    return out


def images(array: Array, where: str | Path, layout: str = "auto") -> Tensor:
    """Images as [N, C, H, W], from [N, H, W], [N, H, W, C] or [N, C, H, W].

    Args:
        array: Bytes or floating numbers.
        where: Named in errors.
        layout: Of four dimensions; "auto" looks which one can be channels (1, 3 or 4).
    """
    if layout not in LAYOUTS:
        raise ConfigError(f"layout is one of {', '.join(LAYOUTS)}; found {layout!r}")
    if array.ndim not in (3, 4) or array.dtype.kind not in "uf" or array.dtype.itemsize > 8:
        raise DataError(
            f"{where} holds {array.dtype} {array.shape}; expected images [N, H, W], [N, H, W, C] "
            "or [N, C, H, W] of uint8 or floating numbers"
        )
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        raise DataError(f"{where} holds {array.dtype}; expected uint8 (0 to 255) or floating")
    if array.ndim == 3:
        return tensor(array).unsqueeze(1)
    if layout == "auto":
        layout = _guess(array.shape, where)
    return tensor(array.transpose(0, 3, 1, 2) if layout == "NHWC" else array)


def _guess(shape: tuple[int, ...], where: str | Path) -> str:
    last, first = shape[3] in _CHANNELS, shape[1] in _CHANNELS
    if last == first:
        raise DataError(
            f"{where} holds images {shape}, and it is not clear which dimension is channels; "
            "write layout='NHWC' or layout='NCHW'"
        )
    return "NHWC" if last else "NCHW"


def with_extra(data: Data, name: str, extra: dict[str, Any]) -> Data:
    """The same data under another name, with further parts."""
    return replace(data, name=name, extra={**data.extra, **extra})
