"""Short vectors of many layers as one table, and the way back for gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from leanbayes.forms import Form, PerDraw, Shared


def side_by_side(tables: Sequence[Tensor]) -> Tensor:
    """Tables `[K, n_i]` as one, `[K, sum n_i]`."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return torch.cat(list(tables), 1)
    joined: Tensor = _SideBySide.apply(*tables)  # type: ignore[no-untyped-call]
    return joined


class _SideBySide(torch.autograd.Function):
    """`torch.cat(tables, 1)`, whose gradients are tensors of their own.

    Columns of the joint gradient would be views with gaps, which the parameters' gradients cannot
    take over: each would be copied by itself.
    """

    @staticmethod
    def forward(ctx: Any, *tables: Tensor) -> Tensor:
        ctx.sizes = [table.shape[1] for table in tables]
        return torch.cat(tables, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled():  # a graph of the gradient is asked for
            return torch.split(grad, ctx.sizes, 1)
        own = [grad.new_empty(len(grad), size) for size in ctx.sizes]
        torch.split_with_sizes_copy(grad.contiguous(), ctx.sizes, 1, out=own)
        return tuple(own)


def forms_of(values: Tensor, sizes: list[int]) -> Sequence[Form]:
    """The vectors that were drawn as one, [D, entries]; of one draw they are cut, not its rows."""
    if len(values) == 1:
        return [Shared(part) for part in torch.split(values[0], sizes)]
    return [PerDraw(part) for part in torch.split(values, sizes, 1)]
