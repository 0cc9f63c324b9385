"""Channels last: the layout in memory that convolutions on a GPU want in half precision.

A kernel `[O, I, h, w]` or an image `[B, C, H, W]` keeps its shape, and its numbers lie in the order
`[O, h, w, I]`. One such operand is enough for a convolution to answer in that layout, and what
follows keeps it, so that inputs of a prediction need no care.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


def turn_(module: nn.Module) -> nn.Module:
    """Lay out kernels channels last, and banks of kernels `[K, O, I, h, w]`, in place.

    Parameters stay the same objects.
    """
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data = turned(tensor.data)
    return module


def turned(x: Tensor) -> Tensor:
    """A tensor of 4 dimensions channels last, one of 5 by slice; others as they are."""
    if x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x.movedim(2, 4).contiguous().movedim(4, 2) if x.dim() == 5 else x


def turned_inputs(inputs: Any) -> Any:
    """Images of a batch channels last."""

    def turn(x: Tensor) -> Tensor:
        return turned(x) if x.dim() == 4 and x.is_floating_point() else x

    return pytree.tree_map_only(Tensor, turn, inputs)
