"""Rows [D * R, ...] and what every draw does to its block of them: scale, shift."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leanbayes.errors import PlanError
from leanbayes.forms import Form, PerDraw, Selected, Shared
from leanbayes.fused import scale_rows, scales


def is_turned(x: Tensor) -> bool:
    """True for images that lie channels last in memory."""
    turned = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return turned and not x.is_contiguous()


def affine(x: Tensor, weight: Form | None, bias: Form | None, channel_dim: int) -> Tensor:
    """`x * weight + bias` along one channel dimension, by block of rows."""
    weight, bias = _gathered(weight), _gathered(bias)
    draws = max(_draws(weight), _draws(bias))
    if channel_dim == 1 and 1 < draws < x.shape[0] and is_turned(x):
        rows = blocks(x, draws)  # backward sums over rows and positions at once
        return rejoined(_affine(rows, _by_block(weight, x), _by_block(bias, x)), x.shape)
    w = None if weight is None else _by_row(weight, x, channel_dim)
    return _affine(x, w, None if bias is None else _by_row(bias, x, channel_dim))


def _affine(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
    if w is not None and b is not None:
        return torch.addcmul(b, x, w)
    y = x if w is None else x * w
    return y if b is None else y + b


def _gathered(form: Form | None) -> Form | None:
    """Copies of a norm's tensor are small, whatever its dimensions: each draw takes its own."""
    if not isinstance(form, Selected):
        return form
    return PerDraw(form.values.index_select(0, form.component))


def _draws(form: Form | None) -> int:
    return form.value.shape[0] if isinstance(form, PerDraw) else 1


def _by_block(form: Form | None, x: Tensor) -> Tensor | None:
    """Channels against blocks [D, R, C, H, W]."""
    if form is None:
        return None
    if not isinstance(form, (Shared, PerDraw)):
        raise TypeError(f"a channel vector cannot take the form {type(form).__name__}")
    return form.value.to(x.dtype).reshape(_draws(form), 1, -1, 1, 1)


def scaled(x: Tensor, factor: Tensor | None, channel_dim: int) -> Tensor:
    """Multiply each block of rows by its own factor: by channel [D, C], or by element [D, ...]."""
    if factor is None:
        return x
    if channel_dim == 1 and scales(x, factor):
        check_blocks(x, len(factor))
        return scale_rows(x, factor)
    if factor.dtype != x.dtype:
        factor = factor.to(x.dtype)
    draws, rows = factor.shape[0], x.shape[0]
    if factor.dim() == x.dim() > 2:
        if draws == rows:
            return x * factor
        return rejoined(blocks(x, draws) * factor.unsqueeze(1), x.shape)
    if (
        channel_dim == 1 and 1 < draws < rows and is_turned(x)
    ):  # backward sums over rows and positions at once
        return rejoined(blocks(x, draws) * factor.reshape(draws, 1, -1, 1, 1), x.shape)
    return x * _by_row(PerDraw(factor), x, channel_dim)


def plus_scaled(x: Tensor, y: Tensor, factor: Tensor | None, channel_dim: int) -> Tensor:
    """`x + y * factor` in one pass; factor [D, C]."""
    if factor is None:
        return x + y
    if channel_dim == 1 and scales(y, factor):
        return x + scaled(y, factor, 1)
    return torch.addcmul(x, y, _by_row(PerDraw(factor), y, channel_dim))


def added(x: Tensor, bias: Form | None, channel_dim: int) -> Tensor:
    """Add a drawn bias along one channel dimension."""
    return x if bias is None else affine(x, None, bias, channel_dim)


def shifted(x: Tensor, bias: Form | None, channel_dim: int) -> Tensor:
    """Add the bias unless the stock operation has added it already (one value, or integrated)."""
    return added(x, bias, channel_dim) if isinstance(bias, PerDraw) else x


def by_row(form: Form | None, x: Tensor) -> Tensor | None:
    """The drawn tensor of every row, [D * R, 1, ..., *shape], or the one that all rows share.

    For an operation by element on x, whose last dimensions are those of the tensor.
    """
    form = _gathered(form)
    if isinstance(form, PerDraw):
        return _repeated(form.value, x, x.dim() - (form.value.dim() - 1))
    if form is None or isinstance(form, Shared):
        return None if form is None else form.value
    raise TypeError(f"a vector a row cannot take the form {type(form).__name__}")


def _by_row(form: Form, x: Tensor, channel_dim: int) -> Tensor:
    """A channel vector a row (or one for all) that broadcasts against x.

    By row, not by block of rows: x keeps its dimensions, and the gradient is summed over positions,
    which lie together, before it is summed over rows.
    """
    if not isinstance(form, (Shared, PerDraw)):
        raise TypeError(f"a channel vector cannot take the form {type(form).__name__}")
    value = form.value
    if value.dtype != x.dtype:
        value = value.to(x.dtype)
    if isinstance(form, Shared):
        value = value.unsqueeze(0)
    return _repeated(value, x, x.dim() - 1 if channel_dim == -1 else channel_dim)


def _repeated(value: Tensor, x: Tensor, inner: int) -> Tensor:
    """Values [D, *shape] for the rows of x, whose dimensions have that shape from `inner` on."""
    draws, shape = value.shape[0], value.shape[1:]
    check_blocks(x, draws)
    if draws not in (1, x.shape[0]):
        repeated = value.unsqueeze(1).expand(draws, x.shape[0] // draws, *shape)
        value = repeated.reshape(x.shape[0], *shape)
    after = x.dim() - inner - len(shape)
    return value.reshape(value.shape[0], *(1,) * (inner - 1), *shape, *(1,) * after)


def check_blocks(x: Tensor, draws: int) -> None:
    """Raise unless the rows can be cut into so many blocks."""
    if x.shape[0] % draws != 0:
        raise PlanError(
            f"a layer got {x.shape[0]} rows for {draws} draws: its input does not hold the batch "
            "in dim 0 (positions without a batch, say). Give it one copy a row, x.expand(rows, "
            "...), or leave the layer out: select=~lb.select.by_name(...)"
        )


def blocks(x: Tensor, draws: int) -> Tensor:
    """The rows of every draw: [D * R, ...] as [D, R, ...]."""
    check_blocks(x, draws)
    return x.reshape(draws, x.shape[0] // draws, *x.shape[1:])


def rejoined(y: Tensor, shape: Sequence[int]) -> Tensor:
    """A temporary with its rows in one dimension again, as a tensor of its own and not a view.

    Networks write into the outputs of layers (`ReLU(inplace=True)`), and a write into a view drops
    the hooks that FSDP2 has put on it.
    """
    mergeable = y.stride(0) == y.shape[1] * y.stride(1) or 1 in y.shape[:2]
    own: Tensor = torch.ops.aten._unsafe_view(y if mergeable else y.contiguous(), list(shape))
    return own
