"""The scale of the columns of a table, and the columns on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leanbayes.data.dataset import Normalize
from leanbayes.errors import DataError

if TYPE_CHECKING:
    from leanbayes.data.tables import Column

Array = NDArray[np.float64]


def scale_of(x: Array) -> Normalize:
    """Mean and standard deviation by column over what is not NaN; constants get a std of 1."""
    known = ~np.isnan(x)
    count = known.sum(0).clip(1)
    mean = np.where(known, x, 0.0).sum(0) / count
    with np.errstate(over="ignore"):  # said by name where columns have some
        std = np.sqrt((np.where(known, x - mean, 0.0) ** 2).sum(0) / count)
    # Rounding leaves about 1e-16 of the mean in constant columns, which is no spread.
    std = np.where(std > 1e-12 * np.abs(mean), std, 1.0)
    return Normalize(tuple(mean.tolist()), tuple(std.tolist()))


def standardised(x: Array, scale: Normalize) -> Tensor:
    """Float32 of `(x - mean) / std`, worked out in float64; NaN becomes 0, the mean."""
    values = (x - np.array(scale.mean)) / np.array(scale.std)
    return torch.from_numpy(np.nan_to_num(values, nan=0.0)).float()


def table_scale(columns: Sequence[Column], x: Array) -> Normalize:
    """Of the number columns; categories stay 0 and 1."""
    plain = np.concatenate([[bool(c.categories)] * max(1, len(c.categories)) for c in columns])
    scale = scale_of(x)
    if not np.isfinite(scale.std).all():
        names = [c.name for c in columns for _ in c.categories or [c.name]]
        wild = names[int(np.argmin(np.isfinite(scale.std)))]
        raise DataError(
            f"column {wild!r} holds numbers too large to be standardised, for their squares are "
            f"infinite: correct the cells, or write drop=[{wild!r}]"
        )
    mean, std = np.where(plain, 0.0, scale.mean), np.where(plain, 1.0, scale.std)
    return Normalize(tuple(mean.tolist()), tuple(std.tolist()))
