"""Arithmetic with drawn parameters: what a stock layer does, for every form of a draw.

Letters: D draws, R rows a draw, I inputs, O outputs. Rows `[D * R, ...]` are draw-major. Forms are
told apart by `isinstance`: at the class patterns of `match` older Dynamos (2.11) break the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from leanbayes.forms import Flipped, Form, LowRank, Moments, PerDraw, Selected, Shared, order_of
from leanbayes.ops.between_factors import Geometry, keeps_once, pays, scaled_convolution
from leanbayes.ops.lookup import embedding
from leanbayes.ops.rows import (
    added,
    affine,
    blocks,
    by_row,
    check_blocks,
    is_turned,
    plus_scaled,
    rejoined,
    scaled,
    shifted,
)

__all__ = [
    "Convolve",
    "Geometry",
    "added",
    "affine",
    "as_multiplied",
    "at_least_float32",
    "blocks",
    "by_component",
    "by_rank",
    "by_row",
    "candidate",
    "channel_scaled",
    "check_blocks",
    "convolution",
    "convolved_between",
    "embedding",
    "few_draws",
    "is_turned",
    "linear",
    "multiplied_type",
    "plus_scaled",
    "rejoined",
    "scaled",
    "shifted",
    "with_factors",
]


class Convolve(Protocol):
    """The stock operation of a layer."""

    def __call__(
        self, rows: Tensor, weight: Tensor, blocks: int, bias: Tensor | None = None
    ) -> Tensor:
        """Convolve rows; `blocks` of channels have a kernel each, one below the other."""


def linear(x: Tensor, weight: Form, bias: Form | None) -> Tensor:
    """`x W^T + b` with one drawn W and b a block of rows; x is [D * R, ..., I]."""
    if isinstance(weight, Shared):
        y = F.linear(x, weight.value, _shared(bias))  # of tokens it is a view
        return shifted(y if y.dim() == 2 else rejoined(y, y.shape), bias, -1)
    if isinstance(weight, PerDraw):
        value = weight.value
        rows = blocks(x, value.shape[0]).reshape(value.shape[0], -1, x.shape[-1])
        y = torch.bmm(rows, value.to(x.dtype).transpose(1, 2))
        return added(rejoined(y, (*x.shape[:-1], value.shape[1])), bias, -1)
    if isinstance(weight, Flipped):
        noise = F.linear(scaled(x, weight.sign1, -1), weight.delta)
        y = plus_scaled(F.linear(x, weight.mean, _shared(bias)), noise, weight.sign0, -1)
        return shifted(y, bias, -1)
    if isinstance(weight, Moments):
        return _local_linear(x, weight.mean, weight.variance, bias)
    if isinstance(weight, Selected):
        values = weight.values.unbind()  # once: every `values[k]` would have a gradient of K copies
        return added(by_component(x, weight, lambda rows, k: F.linear(rows, values[k])), bias, -1)
    return added(_low_rank_linear(x, weight), bias, -1)


def _local_linear(x: Tensor, mean: Tensor, variance: Tensor, bias: Form | None) -> Tensor:
    """Draw the pre-activation itself: N(x mu^T + b, x^2 var^T + var_b), independent by row.

    The exact law of one weight draw a row, at O(B O) random numbers (Kingma et al. 2015).
    """
    bias_mean, bias_variance = bias if isinstance(bias, Moments) else (None, None)
    y = F.linear(x, mean, bias_mean if bias_mean is not None else _shared(bias))
    spread = _standard_deviation(x, variance, bias_variance).to(y.dtype)
    return shifted(torch.addcmul(y, spread, torch.randn_like(spread)), bias, -1)


def _standard_deviation(x: Tensor, variance: Tensor, bias_variance: Tensor | None) -> Tensor:
    # Squares of small scales underflow in half precision, so autocast stops here.
    with torch.autocast(x.device.type, enabled=False):
        square = at_least_float32(x).square()
        shift = None if bias_variance is None else bias_variance.to(square.dtype)
        moments = F.linear(square, variance.to(square.dtype), shift)
    # The floor keeps the gradient of the root finite where a row is all zeros.
    return moments.clamp_min(1e-30).sqrt()


def at_least_float32(tensor: Tensor) -> Tensor:
    """Upcast half precision, whose digits do not suffice for sums and squares of small scales."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def convolution(
    x: Tensor,
    weight: Form,
    bias: Form | None,
    convolve: Convolve,
    transposed: bool = False,
    geometry: Geometry | None = None,
) -> Tensor:
    """A convolution (or its transpose) with one drawn kernel a block of rows; channels in dim 1.

    With its `geometry`, where it has one, factors by channel take less memory.
    """
    if isinstance(weight, Shared):
        y = convolve(x, weight.value, 1)
    elif isinstance(weight, PerDraw):
        y = _convolve_blocks(x, weight.value, convolve)
    elif isinstance(weight, Flipped):
        # A transposed kernel is laid out [I, O / groups, ...], a plain one the other way.
        signs = weight.sign0, weight.sign1
        before, after = signs if transposed else signs[::-1]
        noise = convolve(scaled(x, before, 1), weight.delta, 1)
        y = plus_scaled(convolve(x, weight.mean, 1), noise, after, 1)
    elif isinstance(weight, Selected):
        values = weight.values.unbind()
        y = by_component(x, weight, lambda rows, k: convolve(rows, values[k], 1))
    elif isinstance(weight, LowRank):
        if weight.right.shape[2] == weight.base.shape[1]:  # by channel, or kernels of one position
            y = _low_rank_convolution(x, weight, convolve, transposed, geometry)
            return added(y, bias, 1)
        form = weight
        y = by_component(x, form, lambda rows, k: convolve(rows, candidate(form, k), 1))
    elif isinstance(weight, Moments):
        raise TypeError("a convolution has no local form: its kernel is shared by positions")
    return added(y, bias, 1)


def candidate(form: LowRank, k: int) -> Tensor:
    """The tensor of one candidate, `base * (left @ right)`."""
    base, product = form.base, _product(form.left[k], form.right[k])
    if product.shape[1] * base.shape[0] == base.numel():
        return base * product.reshape(base.shape)
    return base * product.reshape(*product.shape, *(1,) * (base.dim() - 2))


def _product(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right`; of one rank in half precision, and without a graph, entry by entry.

    Each entry is one product then, rounded once either way, and a GPU needs no matrix kernel.
    """
    half = left.dtype in (torch.float16, torch.bfloat16)
    if half and right.dtype == left.dtype and left.shape[1] == 1 and not torch.is_grad_enabled():
        return left * right
    return left @ right


def _low_rank_linear(x: Tensor, form: LowRank) -> Tensor:
    """`sum_j left_j * (W (right_j * x))`: scale, multiply, scale, sum ranks."""
    if _makes_candidates(form, x):
        return linear(x, PerDraw(_candidates(form)), None)
    pairs = zip(*_picked(form), strict=True)
    parts = [scaled(F.linear(scaled(x, r, -1), form.base), left, -1) for left, r in pairs]
    return reduce(torch.add, parts)


def _low_rank_convolution(
    x: Tensor, form: LowRank, convolve: Convolve, transposed: bool, geometry: Geometry | None
) -> Tensor:
    """Factors by channel commute with the kernel's positions: scale, convolve, scale, sum ranks."""
    if _makes_candidates(form, x):
        return _convolve_blocks(x, _candidates(form), convolve)
    parts = []
    for rows, columns in zip(*_picked(form), strict=True):  # of one rank each, [D, channels]
        before, after = (rows, columns) if transposed else (columns, rows)
        before = _tiled(before, x.shape[1])
        parts.append(convolved_between(x, form.base, before, after, convolve, geometry))
    return reduce(torch.add, parts)


def convolved_between(
    x: Tensor,
    weight: Tensor,
    before: Tensor | None,
    after: Tensor | None,
    convolve: Convolve,
    geometry: Geometry | None,
) -> Tensor:
    """`after * conv(before * x, W)`, in one operation where that saves memory, and should."""
    given = (x, weight, before, after)
    if geometry is not None and before is not None and pays(x) and keeps_once(*given):
        outputs = weight.shape[1] * geometry.groups if geometry.transposed else weight.shape[0]
        tiled = None if after is None else _tiled(after, outputs)
        rows, kernel = as_multiplied(x), as_multiplied(weight)
        return scaled_convolution(rows, kernel, before, tiled, geometry)
    y = convolve(scaled(x, before, 1), weight, 1)
    # Factors by element have their own shape.
    return scaled(y, after if after is None or after.dim() > 2 else _tiled(after, y.shape[1]), 1)


def few_draws(draws: int, rows: int) -> bool:
    """True where a tensor a draw is cheaper than a second pass over all rows."""
    return rows >= 8 * draws


def _makes_candidates(form: LowRank, x: Tensor) -> bool:
    return form.left.shape[2] > 1 and few_draws(len(form.component), x.shape[0])


def _candidates(form: LowRank) -> Tensor:
    """The tensors of all draws, [D, *shape]; factors by channel."""
    left, right = (f.index_select(0, form.component) for f in (form.left, form.right))
    product = left @ right
    return form.base * product.reshape(*product.shape, *(1,) * (form.base.dim() - 2))


def _picked(form: LowRank) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """The factors of every draw by rank, [D, channels] each."""
    if form.picked is not None:
        return form.picked
    # index_select: its backward pass adds rows, where that of indexing sorts them.
    left, right = (f.index_select(0, form.component) for f in (form.left, form.right))
    return by_rank(left, 2), by_rank(right, 1)


def by_rank(factors: Tensor, dim: int) -> Sequence[Tensor]:
    """Factors of one rank each."""
    return factors.unbind(dim) if factors.shape[dim] > 1 else (factors.squeeze(dim),)


def _tiled(factor: Tensor, channels: int) -> Tensor:
    """Factors of the channels of one group, for all groups."""
    if factor.shape[1] == channels:
        return factor
    return factor.repeat(1, channels // factor.shape[1])


def with_factors(
    x: Tensor,
    weight: Form,
    before: Tensor | None,
    after: Tensor | None,
    *,
    first: bool,
    groups: int,
) -> tuple[Form, Tensor | None, Tensor | None]:
    """Multiply channel factors into the weight, where the weights are smaller than x.

    Gives the weight and the factors that are left to be applied to rows. `first`: input channels
    are dim 0 of the weight (transposed convolutions).
    """
    if not isinstance(weight, Shared) or torch.compiler.is_compiling():
        return weight, before, after
    value = weight.value
    if value.numel() > x.numel():
        return weight, before, after
    if groups == 1 and _small_kernels(x, value, before, after):
        return PerDraw(_kernels(value, before, after, first)), None, None
    ready = [f is not None and f.shape[0] == 1 and f.dim() == 2 for f in (before, after)]
    if all(ready) and groups == 1 and before is not None and after is not None:
        rows, columns = (before, after) if first else (after, before)  # one pass over the weight
        outer = rows.to(value.dtype).T * columns.to(value.dtype)
        return Shared(value * outer.reshape(*outer.shape, *(1,) * (value.dim() - 2))), None, None
    if ready[0] and before is not None:
        value, before = channel_scaled(value, before[0], first=first, groups=groups), None
    if ready[1] and after is not None:
        value, after = channel_scaled(value, after[0], first=not first, groups=groups), None
    return Shared(value), before, after


def _small_kernels(x: Tensor, weight: Tensor, *factors: Tensor | None) -> bool:
    """True where a kernel a draw is cheaper than passes over the rows, forward and backward.

    Measured on the CPU: kernels of a draw a row (one call) may hold a quarter of the rows' numbers,
    those of a draw a block (a call a block) a thirty-second.
    """
    given = [f for f in factors if f is not None]
    if weight.dim() == 2 or not given or not x.is_cpu or any(f.dim() > 2 for f in given):
        return False
    if is_turned(x):
        return False
    draws = max(len(f) for f in given)
    share = 4 if draws == x.shape[0] else 32
    return draws > 1 and share * draws * weight.numel() <= x.numel()


def _kernels(weight: Tensor, before: Tensor | None, after: Tensor | None, first: bool) -> Tensor:
    """The kernels [D, ...] of draws that differ by channel factors alone."""
    rows, columns = (before, after) if first else (after, before)
    outer = weight.new_ones(()) if rows is None else rows.to(weight.dtype)[:, :, None]
    if columns is not None:
        outer = outer * columns.to(weight.dtype)[:, None]
    return weight * outer.reshape(*outer.shape, *(1,) * (weight.dim() - 2))


def channel_scaled(weight: Tensor, factor: Tensor, *, first: bool, groups: int = 1) -> Tensor:
    """Scale a weight along dim 0, or along dim 1, whose channels count from their group's start."""
    factor = factor.to(weight.dtype)
    if first:
        return weight * factor.reshape(-1, *(1,) * (weight.dim() - 1))
    inner = factor.reshape(groups, 1, -1, *(1,) * (weight.dim() - 2))
    if groups == 1:
        return weight * inner[0]
    return (weight.reshape(groups, -1, *weight.shape[1:]) * inner).reshape(weight.shape)


def by_component(
    x: Tensor, form: Selected | LowRank, run: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """Run each component on its blocks of rows, all at once, and give the rows their order back.

    Sorting reads the components on the host, which a compiled graph cannot: it runs every component
    on every row and picks instead.
    """
    index = form.component
    if torch.compiler.is_compiling():
        members = len(form.values if isinstance(form, Selected) else form.left)
        every = torch.stack([blocks(run(x, k), len(index)) for k in range(members)])
        picked = every[index, torch.arange(len(index), device=x.device)]
        return rejoined(picked, (x.shape[0], *picked.shape[2:]))
    order = form.order or order_of(index)
    pieces = torch.split(blocks(x, len(index))[order.sorted], order.sizes)
    done = [run(rows.flatten(0, 1), k) for k, rows in enumerate(pieces) if len(rows)]
    y = torch.cat(done)
    return rejoined(blocks(y, len(index))[order.back], y.shape)


def _convolve_blocks(x: Tensor, weight: Tensor, convolve: Convolve) -> Tensor:
    """One kernel a draw: a single call with D times the channel groups, [R, D * C, ...].

    It needs the channels of a row together. Rows channels last stay so where a draw has 8 or more,
    by a call a draw.
    """
    draws = weight.shape[0]
    large = x.shape[0] > 8 * draws > 8 and 32 * weight.numel() <= x.numel()
    large = large or (is_turned(x) and few_draws(draws, x.shape[0]))
    if large and not torch.compiler.is_compiling():  # a call a block: rows stay where they are
        pairs = zip(torch.split(x, x.shape[0] // draws), _kernels_of(weight, x), strict=True)
        return torch.cat([convolve(part, kernel, 1) for part, kernel in pairs])
    folded = blocks(x, draws).transpose(0, 1)
    rows = folded.shape[0]
    folded = folded.reshape(rows, draws * x.shape[1], *x.shape[2:])
    y = convolve(folded, weight.reshape(-1, *weight.shape[2:]), draws)
    y = y.reshape(rows, draws, -1, *y.shape[2:]).transpose(0, 1).contiguous()
    return rejoined(y, (draws * rows, *y.shape[2:]))


def _kernels_of(weight: Tensor, x: Tensor) -> Sequence[Tensor]:
    """The kernel of every draw, in the type and layout of a convolution of x: changed all at once.

    Otherwise autocast and the convolution would do so kernel by kernel.
    """
    if not is_turned(x):
        return as_multiplied(weight).unbind()
    flat = weight.flatten(0, 1)
    kernels = flat.to(multiplied_type(flat), memory_format=torch.channels_last)
    return torch.split(kernels, weight.shape[1])


def as_multiplied(tensor: Tensor) -> Tensor:
    """A tensor in the type in which autocast multiplies it; itself without autocast."""
    return tensor.to(multiplied_type(tensor))


def multiplied_type(tensor: Tensor) -> torch.dtype:
    """The type in which autocast multiplies a tensor; its own without autocast."""
    device = tensor.device.type
    cast = torch.is_autocast_enabled(device) and tensor.dtype != torch.float64
    return torch.get_autocast_dtype(device) if cast else tensor.dtype


def _shared(bias: Form | None) -> Tensor | None:
    return bias.value if isinstance(bias, Shared) else None
