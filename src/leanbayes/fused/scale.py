"""Kernels of our own for a GPU: rows of images times a factor a channel, in one pass each way.

PyTorch multiplies images that lie channels last by `[B, C, 1, 1]` without wide loads, and its
backward pass reads and writes them five times over; a rank-1 network does so before and after every
convolution. Here the forward pass reads and writes once, the backward pass reads twice and writes
once. Triton comes with PyTorch on a GPU; without it `scales` says no, and stock operations run.
Under `torch.compile` they run as well, since Inductor fuses them with their neighbours.
"""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

KINDS = (torch.float32, torch.bfloat16, torch.float16)


def scales(x: Tensor, factor: Tensor) -> bool:
    """True where `scale_rows` may stand for `x * factor[:, :, None, None]`."""
    return (
        x.is_cuda
        and x.dim() == 4
        and factor.dim() == 2
        and x.dtype in KINDS
        and x.is_contiguous(memory_format=torch.channels_last)
        and not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
        and has_triton()
    )


@cache
def has_triton() -> bool:
    """True where Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def scale_rows(x: Tensor, factor: Tensor) -> Tensor:
    """`x[b, c] * factor[b // R, c]` with R = B / D rows a draw, in the type of x.

    Products are taken in float32, and so are the sums of the factor's gradient.

    Args:
        x: Images [B, C, H, W] on a GPU, channels last.
        factor: [D, C], D a divisor of B.
    """
    lies_well = factor.stride(1) == 1  # a part of a wider table does too
    own = factor if lies_well else factor.contiguous()
    if not torch.is_grad_enabled():
        return _forward(x, own)
    out: Tensor = _ScaleRows.apply(x, own)  # type: ignore[no-untyped-call]
    return out


def scale_rows_backward(
    x: Tensor, factor: Tensor, grad: Tensor, *, rows: bool = True
) -> tuple[Tensor | None, Tensor]:
    """The gradients of `scale_rows` for x, where they are asked for, and for the factor."""
    grad = grad.contiguous(memory_format=torch.channels_last)
    own = factor if factor.stride(1) == 1 else factor.contiguous()
    dx = torch.empty_like(x) if rows else None
    return dx, _by_draw(_backward(x, own, grad, dx), own).to(factor.dtype)


class _ScaleRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(x, factor)
        return _forward(x, factor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, factor = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody asks for a second derivative
            return _differentiable(x, factor, grad)
        if not ctx.needs_input_grad[1]:
            return _forward(grad.contiguous(memory_format=torch.channels_last), factor), None
        return scale_rows_backward(x, factor, grad, rows=ctx.needs_input_grad[0])


def _differentiable(x: Tensor, factor: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Both gradients by stock operations."""
    rows = factor.repeat_interleave(len(x) // len(factor), 0)[:, :, None, None]
    dx = (grad * rows.to(grad.dtype)).to(x.dtype)
    return dx, _by_draw((grad * x).sum((2, 3)), factor).to(factor.dtype)


def _by_draw(rows: Tensor, factor: Tensor) -> Tensor:
    """Sums [D, C] over the rows of a draw."""
    if len(rows) == len(factor):
        return rows
    return rows.view(len(factor), -1, rows.shape[1]).sum(1)


def _forward(x: Tensor, factor: Tensor) -> Tensor:
    from leanbayes.fused.kernels import scale

    out = torch.empty_like(x)
    rows, channels, height, width = x.shape
    pixels = rows * height * width
    wide = 64 if channels >= 64 else 16
    tall = 2048 // wide
    grid = (-(-pixels // tall), -(-channels // wide))
    span = height * width * (rows // len(factor))  # pixels of a draw
    with _at(x):
        scale[grid](
            *(x, factor, out, pixels, channels, span, factor.stride(0)), TALL=tall, WIDE=wide
        )
    return out


def _backward(x: Tensor, factor: Tensor, grad: Tensor, dx: Tensor | None) -> Tensor:
    """The gradient of the factor by row [B, C], float32; that of x goes into dx."""
    from leanbayes.fused.kernels import scale_backward

    rows, channels, height, width = x.shape
    found = torch.empty(rows, channels, device=x.device, dtype=torch.float32)
    wide, tall = 32, 64
    grid = (rows, -(-channels // wide))
    each = rows // len(factor)
    with _at(x):
        scale_backward[grid](
            *(x, factor, grad, x if dx is None else dx, found),
            *(height * width, channels, each, factor.stride(0)),
            TALL=tall,
            WIDE=wide,
            INPUTS=dx is not None,
        )
    return found


def _at(x: Tensor) -> AbstractContextManager[Any]:
    """Launches go to the GPU of x, which mostly is the current one."""
    away = x.is_cuda and x.device.index != torch.cuda.current_device()
    return torch.cuda.device(x.device) if away else nullcontext()
