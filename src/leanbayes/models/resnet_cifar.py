"""The small residual networks for CIFAR-10, with the parameter names of public checkpoints."""

from torch import Tensor, nn
from torch.nn.functional import pad

from leanbayes.models.initialise import he_normal_


class CifarBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut without parameters."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, inputs, H, W] to [B, outputs, H / stride, W / stride]."""
        hidden = self.bn1(self.conv1(x)).relu()
        out: Tensor = self.bn2(self.conv2(hidden))
        return (out + self._shortcut(x)).relu()

    def _shortcut(self, x: Tensor) -> Tensor:
        """Keep every stride-th pixel and add zero channels on both sides."""
        stride = self.conv1.stride[0]
        side = (self.conv1.out_channels - self.conv1.in_channels) // 2
        return pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, side, side))


class CifarResNet(nn.Module):
    """A residual network of three stages with 16, 32 and 64 channels.

    K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2, with its
    parameter-free shortcut (option A). The state_dict has the keys conv1, bn1, layer1 to layer3 and
    linear, so the checkpoints of the public repository akamaster/pytorch_resnet_cifar10 load once
    their prefix "module." is removed. Built by resnet20 and resnet56.

    Args:
        blocks: Blocks in each stage; the depth is 6 blocks + 2.
        num_classes: Number of logits.
    """

    def __init__(self, blocks: int, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, stride=1)
        self.layer2 = _stage(16, 32, blocks, stride=2)
        self.layer3 = _stage(32, 64, blocks, stride=2)
        self.linear = nn.Linear(64, num_classes)
        he_normal_(self)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to logits [B, num_classes]."""
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer3(self.layer2(self.layer1(x)))
        out: Tensor = self.linear(x.mean((2, 3)))
        return out


def resnet20(num_classes: int = 10) -> CifarResNet:
    """Build ResNet-20: 269,722 parameters at 10 classes.

    Example:
        >>> sum(p.numel() for p in resnet20().parameters())
        269722
    """
    return CifarResNet(3, num_classes)


def resnet56(num_classes: int = 10) -> CifarResNet:
    """Build ResNet-56: 853,018 parameters at 10 classes.

    Example:
        >>> sum(p.numel() for p in resnet56().parameters())
        853018
    """
    return CifarResNet(9, num_classes)


def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    """Chain blocks; the first one changes size and channels."""
    rest = (CifarBlock(outputs, outputs, 1) for _ in range(blocks - 1))
    return nn.Sequential(CifarBlock(inputs, outputs, stride), *rest)
