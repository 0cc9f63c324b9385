"""Many small networks of one shape as one: the splits of a table train together."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class GroupedLinear(nn.Conv1d):
    """`nn.Conv1d` of kernels and signals of one position, as a product of matrices a group.

    The same function and parameters; grouped convolutions are made for long signals and take about
    six times as long for short ones.

    Example:
        >>> layer, x = GroupedLinear(20 * 6, 20 * 50, groups=20), torch.randn(8, 120, 1)
        >>> torch.allclose(layer(x), nn.Conv1d.forward(layer, x), atol=1e-5)
        True
    """

    def __init__(self, in_channels: int, out_channels: int, groups: int) -> None:
        super().__init__(in_channels, out_channels, 1, groups=groups)

    def forward(self, input: Tensor) -> Tensor:
        """Map [B, groups * I, 1] to [B, groups * O, 1]."""
        return products(input, self.weight, self.groups, self.bias)


def products(x: Tensor, weight: Tensor, groups: int, bias: Tensor | None = None) -> Tensor:
    """`W_g x_g + b_g` of every group g: [B, G * I, 1] and [G * O, I, 1] give [B, G * O, 1]."""
    rows = x.reshape(len(x), groups, -1).transpose(0, 1)
    kernels = weight.reshape(groups, -1, weight.shape[1])
    y = torch.bmm(rows, kernels.transpose(1, 2)).transpose(0, 1).reshape(len(x), -1, 1)
    return y if bias is None else y + bias.unsqueeze(-1)


class GroupedMLP(nn.Module):
    """`groups` independent fully connected networks, side by side in grouped convolutions.

    Group g reads the features `g * inputs` to `(g + 1) * inputs` of a row and writes its own
    outputs. A BatchNorm a channel belongs to one group, so every network is normalised by its own
    rows, and what converts a convolution converts all networks at once. One step of 20 networks of
    50 units costs little more than one of a single network.

    Parameters: groups x those of one network.

    Args:
        groups: Networks.
        inputs: Features that each of them reads.
        hidden: Width of every hidden layer of each.
        outputs: Outputs of each.
        norm: BatchNorm after the input and before every ReLU.
        norm_scale: Where the scales of these norms begin; 0.2 in the regressions of model patching
            (Chen and Shyu 2019, D.7).

    Example:
        >>> GroupedMLP(groups=20, inputs=13).output
        GroupedLinear(1000, 20, kernel_size=(1,), stride=(1,), groups=20)
    """

    def __init__(
        self,
        groups: int,
        inputs: int,
        hidden: Sequence[int] = (50,),
        outputs: int = 1,
        *,
        norm: bool = True,
        norm_scale: float = 1.0,
    ) -> None:
        super().__init__()
        widths = [groups * width for width in (inputs, *hidden)]
        pairs = list(pairwise(widths))
        self.norm_input = _norm(widths[0], norm, norm_scale)
        self.hidden = nn.ModuleList(GroupedLinear(i, o, groups) for i, o in pairs)
        self.norms = nn.ModuleList(_norm(o, norm, norm_scale) for o in widths[1:])
        self.output = GroupedLinear(widths[-1], groups * outputs, groups)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, groups * inputs] to [B, groups * outputs]."""
        x = self.norm_input(x.flatten(1).unsqueeze(-1))
        for layer, norm in zip(self.hidden, self.norms, strict=True):
            x = norm(layer(x)).relu()
        out: Tensor = self.output(x).flatten(1)
        return out


def _norm(channels: int, wanted: bool, scale: float) -> nn.Module:
    if not wanted:
        return nn.Identity()
    norm = nn.BatchNorm1d(channels)
    nn.init.constant_(norm.weight, scale)
    return norm
