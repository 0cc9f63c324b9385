"""Hosts of the layers of `timm`, and of others like them: stock layers with something around.

The types are known by their names (`layers/named.py`); nothing is imported for them.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from leanbayes import ops
from leanbayes.layers.base import original_class
from leanbayes.layers.conv import BayesianConv2d
from leanbayes.layers.norm import (
    BayesianBatchNorm2d,
    BayesianSyncBatchNorm,
    NormHost,
    one_value,
    value_of,
)
from leanbayes.layers.own_forward import own_forward


class BayesianConv2dSame(BayesianConv2d):
    """`Conv2dSame`: zeros around the rows, as many as TensorFlow puts there, then a Conv2d."""

    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to rows [D * R, C, H, W]."""
        sizes = zip(input.shape[-2:], self.kernel_size, self.stride, self.dilation, strict=True)
        height, width = (_zeros(*size) for size in sizes)
        return super().forward(F.pad(input, (*width, *height)))


def _zeros(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Zeros before and after, for an output of size / stride, rounded up."""
    last = (-(-size // stride) - 1) * stride
    zeros = max(last + (kernel - 1) * dilation + 1 - size, 0)
    return zeros // 2, zeros - zeros // 2


class BayesianBatchNormAct2d(BayesianBatchNorm2d):
    """`BatchNormAct2d`: a BatchNorm2d, then the drop and the activation that it holds."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to rows [D * R, C, H, W]."""
        return _activated(self, super().forward(input))


class BayesianSyncBatchNormAct(BayesianSyncBatchNorm):
    """`SyncBatchNormAct`: a SyncBatchNorm, then the drop and the activation that it holds."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to rows [D * R, C, ...]."""
        return _activated(self, super().forward(input))


class BayesianOwnNorm(NormHost):
    """A norm over the last dimensions by its own forward, then a drawn affine map.

    Where rows differ in their draws, the own forward runs without weight and bias. An activation
    that the layer holds comes last, behind the mask.
    """

    stock: ClassVar[type[nn.Module]] = nn.Module  # known by name: every layer has a joint class
    normalized_shape: tuple[int, ...]

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to rows [D * R, ..., *normalized_shape]."""
        weight, bias = self.form("weight"), self.form("bias")
        shared = one_value(weight) and one_value(bias)
        tensors = (value_of(weight), value_of(bias)) if shared else (None, None)
        found = dict(zip(self.tensor_names, tensors, strict=True), drop=_same, act=_same)
        y = own_forward(original_class(self), self, (x,), found)
        y = y if shared else ops.affine(y, weight, bias, self._channel_dim(x))
        return _activated(self, self.masked(y))

    def _channel_dim(self, x: Tensor) -> int:
        return x.dim() - len(self.normalized_shape)


class BayesianOwnNorm2d(BayesianOwnNorm):
    """The same for channels in dim 1."""

    channel: ClassVar[int | None] = 0

    def _channel_dim(self, x: Tensor) -> int:  # noqa: ARG002
        return 1


def _same(x: Tensor) -> Tensor:
    return x


def _activated(layer: nn.Module, y: Tensor) -> Tensor:
    for name in ("drop", "act"):
        step = layer._modules.get(name)
        y = y if step is None else step(y)
    return y
