"""Many small networks of one shape as one: the splits of a table train together."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn


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
        Conv1d(1000, 20, kernel_size=(1,), stride=(1,), groups=20)
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
        self.hidden = nn.ModuleList(nn.Conv1d(i, o, 1, groups=groups) for i, o in pairs)
        self.norms = nn.ModuleList(_norm(o, norm, norm_scale) for o in widths[1:])
        self.output = nn.Conv1d(widths[-1], groups * outputs, 1, groups=groups)

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
