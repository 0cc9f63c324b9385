"""Hosts of the convolutions and their transposes, in one, two and three dimensions."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from leanbayes import ops
from leanbayes.forms import Ask, Shared
from leanbayes.layers.base import PLAIN, Host


class ConvolutionHost(Host, _ConvNd):
    """What the six hosts share: signs on channels, one call of the stock operation."""

    kind: ClassVar[str] = "conv"
    masks_output: ClassVar[bool] = True
    channel: ClassVar[int | None] = 0

    def ask(self, slot: str) -> Ask:
        """Signs by channel: a sign a pixel would decorrelate the kernel over positions."""
        if slot != "weight":
            return PLAIN
        if self.transposed:  # [I, O / groups, ...]
            return Ask(signs=(self.in_channels, self.out_channels))
        return Ask(signs=(self.out_channels, self.in_channels))

    @classmethod
    def input_dim(cls, layer: nn.Module) -> int:
        """Dim 0 of a transposed kernel."""
        assert isinstance(layer, _ConvNd)
        return 0 if layer.transposed else 1

    @classmethod
    def input_groups(cls, layer: nn.Module) -> int:
        """Those of a plain kernel; dim 0 of a transposed one counts all inputs."""
        assert isinstance(layer, _ConvNd)
        return 1 if layer.transposed else layer.groups

    @classmethod
    def widths(cls, layer: nn.Module) -> tuple[int, int]:
        """Channels in and out."""
        assert isinstance(layer, _ConvNd)
        return layer.in_channels, layer.out_channels

    def run(
        self, input: Tensor, convolve: ops.Convolve, geometry: ops.Geometry | None = None
    ) -> Tensor:
        """Scale channels, convolve with the drawn kernel, scale channels, add the bias."""
        weight = self.form("weight", self.ask("weight"))
        assert weight is not None
        rows = self.rows_of(input, len(self.kernel_size) + 1)
        before, after = self.factor("in_scale", rows), self.factor("out_scale", rows)
        weight, before, after = ops.with_factors(
            rows, weight, before, after, first=self.transposed, groups=self.groups
        )
        bias, between = self.form("bias"), not (before is None and after is None)
        if isinstance(weight, Shared) and isinstance(bias, Shared) and not between:
            y, bias = convolve(rows, weight.value, 1, bias.value), None  # as the stock layer does
        elif isinstance(weight, Shared):
            y = ops.convolved_between(rows, weight.value, before, after, convolve, geometry)
        else:
            x = ops.scaled(rows, before, 1)
            y = ops.convolution(x, weight, None, convolve, self.transposed, geometry)
            y = ops.scaled(y, after, 1)
        y = ops.added(y, bias, 1)
        y = ops.scaled(y, self.factor("out_mask", y), 1)
        return y if rows is input else y[0]

    def absorb(self, slot: str, factor: Tensor) -> None:
        """Scale the kernel by channel; channels of dim 1 count from the start of their group."""
        first = (slot == "in_scale") == self.transposed
        scaled = ops.channel_scaled(self.weight, factor, first=first, groups=self.groups)
        self.weight.copy_(scaled)


class _Convolution(ConvolutionHost):
    overrides: ClassVar[tuple[str, ...]] = ("forward", "_conv_forward")

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to rows [D * R, C, ...]."""
        return self.run(input, self._convolve, self._geometry)

    @property
    def _geometry(self) -> ops.Geometry | None:
        """None where rows are padded first, or by as much as it takes."""
        if self.padding_mode != "zeros" or isinstance(self.padding, str):
            return None
        zeros = (0,) * len(self.kernel_size)
        settings = (self.stride, self.padding, self.dilation, False, zeros, self.groups)
        return ops.Geometry(*settings)

    def _convolve(
        self, rows: Tensor, weight: Tensor, blocks: int, bias: Tensor | None = None
    ) -> Tensor:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            rows = F.pad(rows, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        groups = self.groups * blocks
        convolve: Any = (F.conv1d, F.conv2d, F.conv3d)[weight.dim() - 3]
        y: Tensor = convolve(rows, weight, bias, self.stride, padding, self.dilation, groups)
        return y


class BayesianConv1d(_Convolution, nn.Conv1d):
    """`nn.Conv1d` with a drawn kernel."""

    stock: ClassVar[type[nn.Module]] = nn.Conv1d


class BayesianConv2d(_Convolution, nn.Conv2d):
    """`nn.Conv2d` with a drawn kernel."""

    stock: ClassVar[type[nn.Module]] = nn.Conv2d


class BayesianConv3d(_Convolution, nn.Conv3d):
    """`nn.Conv3d` with a drawn kernel."""

    stock: ClassVar[type[nn.Module]] = nn.Conv3d


class _TransposedConvolution(ConvolutionHost, _ConvTransposeNd):
    overrides: ClassVar[tuple[str, ...]] = ("forward", "_output_padding")

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Apply the layer to rows [D * R, C, ...]."""
        dims = self.weight.dim() - 2
        extra = self._extra_padding(input, output_size, dims)
        convolve: Any = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]

        def transposed(
            rows: Tensor, weight: Tensor, blocks: int, bias: Tensor | None = None
        ) -> Tensor:
            groups = self.groups * blocks
            y: Tensor = convolve(
                rows, weight, bias, self.stride, self.padding, extra, groups, self.dilation
            )
            return y

        padding: Any = self.padding
        settings = (self.stride, padding, self.dilation, True, tuple(extra), self.groups)
        return self.run(input, transposed, ops.Geometry(*settings))

    def _extra_padding(self, x: Tensor, output_size: list[int] | None, dims: int) -> list[int]:
        output_padding: Any = self._output_padding
        settings = (self.stride, self.padding, self.kernel_size, dims, self.dilation)
        extra: list[int] = output_padding(x, output_size, *settings)
        return extra


class BayesianConvTranspose1d(_TransposedConvolution, nn.ConvTranspose1d):
    """`nn.ConvTranspose1d` with a drawn kernel."""

    stock: ClassVar[type[nn.Module]] = nn.ConvTranspose1d


class BayesianConvTranspose2d(_TransposedConvolution, nn.ConvTranspose2d):
    """`nn.ConvTranspose2d` with a drawn kernel."""

    stock: ClassVar[type[nn.Module]] = nn.ConvTranspose2d


class BayesianConvTranspose3d(_TransposedConvolution, nn.ConvTranspose3d):
    """`nn.ConvTranspose3d` with a drawn kernel."""

    stock: ClassVar[type[nn.Module]] = nn.ConvTranspose3d
