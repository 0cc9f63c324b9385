"""A convolution between channel factors that keeps its input once, not twice.

`y = after * conv(before * x, W)` as three operations keeps x for the gradient of the factor and
`before * x` for that of the kernel. Here the product is made again in the backward pass, one more
pass over the rows, and a network with factors on its inputs keeps what the network alone keeps. A
GPU, whose memory is short, does it so; on a CPU it would make a step up to a tenth slower.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from leanbayes.fused.scale import scale_rows_backward, scales
from leanbayes.ops.rows import check_blocks, scaled


class Geometry(NamedTuple):
    """What a convolution is besides its tensors, in the order of torch's own operation."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int


def pays(x: Tensor) -> bool:
    """True where memory is worth a pass over the rows: not on a CPU."""
    return not x.is_cpu


def keeps_once(x: Tensor, weight: Tensor, before: Tensor | None, after: Tensor | None) -> bool:
    """True where `scaled_convolution` may stand for the three operations, and saves memory."""
    if before is None or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    given = [tensor for tensor in (x, weight, before, after) if tensor is not None]
    return (
        any(tensor.requires_grad for tensor in given)
        and all(factor is None or factor.dim() == 2 for factor in (before, after))
        and all(type(tensor) in (Tensor, torch.nn.Parameter) for tensor in given)
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def scaled_convolution(
    x: Tensor, weight: Tensor, before: Tensor, after: Tensor | None, geometry: Geometry
) -> Tensor:
    """`after[d] * conv(before[d] * x[r], W)` for the rows r of every draw d.

    Args:
        x: Rows [D * R, C, ...].
        weight: One kernel for all.
        before: Factors of the input channels, [D, C].
        after: Factors of the output channels, [D, C'], or None.
        geometry: Of the convolution.
    """
    for factor in (before, after):
        if factor is not None:
            check_blocks(x, len(factor))
    out: Tensor = _ScaledConvolution.apply(x, weight, before, after, geometry)  # type: ignore[no-untyped-call]
    return out


class _ScaledConvolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        before: Tensor,
        after: Tensor | None,
        geometry: Geometry,
    ) -> Tensor:
        y = _convolved(scaled(x, before, 1), weight, geometry)
        needed = after is not None and after.requires_grad
        ctx.save_for_backward(x, weight, before, after, y if needed else None)
        ctx.geometry = geometry
        return scaled(y, after, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, before, after, y = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody asks for a second derivative
            return _differentiable(ctx, grad)
        needs = ctx.needs_input_grad
        slope: Tensor | None = grad
        of_after: Tensor | None = None
        if after is not None:
            slope, of_after = scaled_backward(y, after, grad, factors=needs[3])
        wanted = [needs[0] or needs[2], needs[1], False]
        inner, of_weight, _ = torch.ops.aten.convolution_backward(
            slope, scaled(x, before, 1), weight, None, *ctx.geometry, wanted
        )
        of_x, of_before = None, None
        if inner is not None:
            of_x, of_before = scaled_backward(x, before, inner, rows=needs[0], factors=needs[2])
        return of_x, of_weight, of_before, of_after, None


def _convolved(x: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    y: Tensor = torch.ops.aten.convolution(x, weight, None, *geometry)
    return y


def _differentiable(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients by stock operations, with a graph."""
    x, weight, before, after, _ = ctx.saved_tensors
    y = scaled(_convolved(scaled(x, before, 1), weight, ctx.geometry), after, 1)
    inputs = (x, weight, before, after)
    wanted = [at for at, needed in enumerate(ctx.needs_input_grad[:4]) if needed]
    found = torch.autograd.grad(y, [inputs[at] for at in wanted], grad, create_graph=True)
    slots: list[Tensor | None] = [None] * 5
    for at, value in zip(wanted, found, strict=True):
        slots[at] = value
    return tuple(slots)


def scaled_backward(
    x: Tensor | None, factor: Tensor, grad: Tensor, *, rows: bool = True, factors: bool = True
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of `scaled` for the rows, and for the factors [D, C] where x is there."""
    if x is None or not factors:
        return scaled(grad, factor, 1) if rows else None, None
    if scales(x, factor):
        return scale_rows_backward(x, factor, grad, rows=rows)
    of_rows = scaled(grad, factor, 1) if rows else None
    wide = torch.promote_types(x.dtype, torch.float32)
    sums = (grad * x).sum(tuple(range(2, x.dim())), dtype=wide)
    return of_rows, sums.reshape(len(factor), -1, sums.shape[1]).sum(1).to(factor.dtype)
