"""Rows of drawn tables by their number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from leanbayes.forms import Flipped, Form, PerDraw, Selected, Shared
from leanbayes.ops.rows import blocks, rejoined


def embedding(
    ids: Tensor,
    weight: Form,
    lookup: Callable[[Tensor, Tensor], Tensor],
    padding: int | None = None,
) -> Tensor:
    """Look up drawn rows; equal ids within one draw share their noise."""
    if isinstance(weight, Shared):
        return lookup(ids, weight.value)
    if isinstance(weight, PerDraw):
        every = torch.arange(len(weight.value), device=ids.device)
        return _drawn_rows(ids, weight.value, padding, every)
    if isinstance(weight, Selected):
        return _drawn_rows(ids, weight.values, padding, weight.component)
    if isinstance(weight, Flipped):
        noise = _flipped_rows(ids, weight.delta, weight.sign0, weight.sign1)
        return lookup(ids, weight.mean) + noise
    raise TypeError(f"an embedding cannot take the form {type(weight).__name__}")


def _drawn_rows(ids: Tensor, value: Tensor, padding: int | None, index: Tensor) -> Tensor:
    """Look up in the table `value[index[d]]` for the ids of draw d."""
    offset = index * value.shape[1]
    rows = blocks(ids, len(index)).flatten(1) + offset[:, None]
    y = rejoined(F.embedding(rows, value.flatten(0, 1)), (*ids.shape, value.shape[-1]))
    if padding is None:
        return y
    # As in the stock layer, the padding row takes no gradient.
    return torch.where((ids == padding)[..., None], y.detach(), y)


def _flipped_rows(ids: Tensor, delta: Tensor, sign0: Tensor | None, sign1: Tensor) -> Tensor:
    draws = sign1.shape[0]
    rows = blocks(ids, draws).flatten(1)
    noise = F.embedding(rows, delta) * sign1[:, None, :]
    if sign0 is not None:
        noise = noise * sign0.gather(1, rows)[..., None]
    return noise.reshape(*ids.shape, delta.shape[-1])
