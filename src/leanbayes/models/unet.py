"""U-Net for segmentation."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, max_pool2d

from leanbayes.errors import ConfigError
from leanbayes.models.initialise import he_normal_


class DoubleConv(nn.Module):
    """Two 3x3 convolutions with bias, each followed by ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, inputs, H, W] to [B, outputs, H, W]."""
        out: Tensor = self.conv2(self.conv1(x).relu()).relu()
        return out


class UNet(nn.Module):
    """An encoder that halves the size, a decoder that doubles it, and a bridge at each size.

    O. Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", MICCAI
    2015, in the form of the PBN experiments: padded convolutions with bias, no norm layers,
    bilinear upsampling without parameters, then concatenation and two convolutions. It has
    31,380,180 parameters at 20 classes.

    Args:
        channels: Channels of the images.
        num_classes: Logits of one pixel.
        widths: Channels at each size, from the full one down.

    Raises:
        ConfigError: Less than two widths are given.

    Example:
        >>> UNet(widths=(8, 16)).output
        Conv2d(8, 20, kernel_size=(1, 1), stride=(1, 1))
    """

    def __init__(
        self,
        channels: int = 3,
        num_classes: int = 20,
        widths: Sequence[int] = (64, 128, 256, 512, 1024),
    ) -> None:
        super().__init__()
        if len(widths) < 2:
            raise ConfigError(
                f"widths needs two entries or more, got {tuple(widths)}; write widths=(64, 128)"
            )
        self.down = nn.ModuleList(DoubleConv(i, o) for i, o in pairwise((channels, *widths)))
        self.up = nn.ModuleList(DoubleConv(i + o, o) for i, o in pairwise(reversed(widths)))
        self.output = nn.Conv2d(widths[0], num_classes, 1)
        he_normal_(self)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, channels, H, W] to logits [B, num_classes, H, W]."""
        bridges = [self.down[0](x)]
        for encode in self.down[1:]:
            bridges.append(encode(max_pool2d(bridges[-1], 2)))
        x = bridges.pop()
        for decode, bridge in zip(self.up, reversed(bridges), strict=True):
            x = decode(torch.cat((bridge, _resize(x, bridge)), 1))
        out: Tensor = self.output(x)
        return out


def _resize(x: Tensor, like: Tensor) -> Tensor:
    """Upsample to the size of another tensor, which also covers odd sizes."""
    return interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=False)
