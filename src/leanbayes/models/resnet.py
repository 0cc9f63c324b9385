"""ResNet-18 and ResNet-50, with the parameter names of torchvision's, and a small one."""

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

from torch import Tensor, nn

from leanbayes.errors import ConfigError
from leanbayes.models.initialise import he_normal_

Stem = Literal["imagenet", "cifar", "conv7"]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut; the first one carries the stride."""

    expansion: ClassVar[int] = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, inputs, H, W] to [B, width, H / stride, W / stride]."""
        hidden = self.bn1(self.conv1(x)).relu()
        out: Tensor = self.bn2(self.conv2(hidden))
        short: Tensor = self.downsample(x)
        return (out + short).relu()


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions beside a shortcut; the 3x3 one carries the stride."""

    expansion: ClassVar[int] = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = _conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, inputs, H, W] to [B, 4 x width, H / stride, W / stride]."""
        hidden = self.bn1(self.conv1(x)).relu()
        hidden = self.bn2(self.conv2(hidden)).relu()
        out: Tensor = self.bn3(self.conv3(hidden))
        short: Tensor = self.downsample(x)
        return (out + short).relu()


class ResNet(nn.Module):
    """A residual network of four stages, each twice as wide and half as large as the one before.

    K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, with the stride of a
    bottleneck on its 3x3 convolution ("v1.5"). The state_dict has torchvision's keys and shapes,
    so its public checkpoints load. Built by resnet18 and resnet50.

    Args:
        block: BasicBlock or Bottleneck.
        depths: Blocks in each stage.
        width: Channels of the first stage.
        num_classes: Number of logits.
        stem: "imagenet" (7x7 with stride 2, then max pooling: a quarter of the input's size),
            "cifar" (3x3 at full size, for images of about 32x32) or "conv7" (7x7 at full size, the
            CIFAR-10 net of the PBN experiments; it has as many parameters as "imagenet").

    Raises:
        ConfigError: The stem has another name.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, int, int, int],
        width: int = 64,
        num_classes: int = 1000,
        stem: Stem = "imagenet",
    ) -> None:
        super().__init__()
        wide = width * block.expansion
        self.conv1, self.maxpool = _stem(stem, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = _stage(block, width, width, depths[0], stride=1)
        self.layer2 = _stage(block, wide, 2 * width, depths[1], stride=2)
        self.layer3 = _stage(block, 2 * wide, 4 * width, depths[2], stride=2)
        self.layer4 = _stage(block, 4 * wide, 8 * width, depths[3], stride=2)
        self.fc = nn.Linear(8 * wide, num_classes)
        he_normal_(self)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to logits [B, num_classes]."""
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        out: Tensor = self.fc(x.mean((2, 3)))
        return out


def resnet18(width: int = 64, num_classes: int = 1000, stem: Stem = "imagenet") -> ResNet:
    """Build ResNet-18: 11,689,512 parameters at 1,000 classes; see ResNet for the arguments.

    Example:
        >>> sum(p.numel() for p in resnet18().parameters())
        11689512
    """
    return ResNet(BasicBlock, (2, 2, 2, 2), width, num_classes, stem)


def resnet50(width: int = 64, num_classes: int = 1000, stem: Stem = "imagenet") -> ResNet:
    """Build ResNet-50: 25,557,032 parameters at 1,000 classes; see ResNet for the arguments.

    Example:
        >>> sum(p.numel() for p in resnet50().parameters())
        25557032
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), width, num_classes, stem)


class SmallResNet(nn.Module):
    """A residual network of few blocks for 32x32 images, each half as large as the one before.

    The small net of the PBN experiments (CIFAR-10 and SVHN): a 3x3 convolution with stride 2, max
    pooling, four blocks with stride 2 and "features of [16, 32, 64]". Which width occurs twice is
    not said; here the first block keeps the 16 of the stem.

    Args:
        widths: Channels of every block; the stem has those of the first.
        num_classes: Number of logits.

    Raises:
        ConfigError: No width is given.
    """

    def __init__(self, widths: Sequence[int] = (16, 16, 32, 64), num_classes: int = 10) -> None:
        super().__init__()
        if not widths:
            raise ConfigError("widths is empty; write widths=(16, 16, 32, 64)")
        self.conv1 = _conv(3, widths[0], 3, 2)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.maxpool = nn.MaxPool2d(2)
        pairs = pairwise((widths[0], *widths))
        self.blocks = nn.Sequential(*(BasicBlock(i, o, stride=2) for i, o in pairs))
        self.fc = nn.Linear(widths[-1], num_classes)
        he_normal_(self)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to logits [B, num_classes]."""
        x = self.blocks(self.maxpool(self.bn1(self.conv1(x)).relu()))
        out: Tensor = self.fc(x.mean((2, 3)))
        return out


def _stem(stem: Stem, width: int) -> tuple[nn.Conv2d, nn.Module]:
    """Make the first convolution and the pooling after it."""
    if stem == "imagenet":
        return _conv(3, width, 7, 2), nn.MaxPool2d(3, stride=2, padding=1)
    if stem == "cifar":
        return _conv(3, width, 3), nn.Identity()
    if stem == "conv7":
        return _conv(3, width, 7), nn.Identity()
    raise ConfigError(f'unknown stem {stem!r}; write stem="imagenet", "cifar" or "conv7"')


def _stage(
    block: type[BasicBlock] | type[Bottleneck], inputs: int, width: int, depth: int, stride: int
) -> nn.Sequential:
    """Chain depth blocks; the first one changes size and channels."""
    rest = (block(width * block.expansion, width, 1) for _ in range(depth - 1))
    return nn.Sequential(block(inputs, width, stride), *rest)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Make the identity where shapes agree, else a normalised 1x1 convolution."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Make a size-preserving convolution without bias: a norm follows it."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
