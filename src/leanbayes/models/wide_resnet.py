"""Wide residual network for 32x32 images."""

from torch import Tensor, nn

from leanbayes.errors import ConfigError
from leanbayes.models.initialise import he_normal_


class PreActivationBlock(nn.Module):
    """Norm, ReLU, 3x3 convolution, twice; a 1x1 shortcut where the channel count changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, inputs, H, W] to [B, outputs, H / stride, W / stride]."""
        active = self.bn1(x).relu()
        # A projected shortcut starts after the activation, an identity one before it.
        short: Tensor = x if self.shortcut is None else self.shortcut(active)
        out: Tensor = self.conv2(self.bn2(self.conv1(active)).relu())
        return out + short


class WideResNet(nn.Module):
    """A pre-activation residual network of three stages, wide rather than deep.

    S. Zagoruyko and N. Komodakis, "Wide Residual Networks", BMVC 2016, without dropout and without
    convolution biases. WRN-28-10 has 36,479,194 parameters at 10 classes.

    Args:
        depth: Number of layers, 6 n + 4 for n blocks a stage.
        width: Factor on the 16, 32 and 64 channels of the stages.
        num_classes: Number of logits.
        channels: Of the images.

    Raises:
        ConfigError: The depth is not 10, 16, 22, 28, ...

    Example:
        >>> WideResNet(depth=16, width=4).fc
        Linear(in_features=256, out_features=10, bias=True)
    """

    def __init__(
        self, depth: int = 28, width: int = 10, num_classes: int = 10, channels: int = 3
    ) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if blocks < 1 or rest:
            raise ConfigError(f"depth must be 6 n + 4 with n >= 1, got {depth}; write depth=28")
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.stage1 = _stage(16, 16 * width, blocks, stride=1)
        self.stage2 = _stage(16 * width, 32 * width, blocks, stride=2)
        self.stage3 = _stage(32 * width, 64 * width, blocks, stride=2)
        self.bn = nn.BatchNorm2d(64 * width)
        self.fc = nn.Linear(64 * width, num_classes)
        he_normal_(self)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, channels, H, W] to logits [B, num_classes]."""
        x = self.stage3(self.stage2(self.stage1(self.conv1(x))))
        out: Tensor = self.fc(self.bn(x).relu().mean((2, 3)))
        return out


def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    """Chain blocks; the first one changes size and channels."""
    rest = (PreActivationBlock(outputs, outputs, 1) for _ in range(blocks - 1))
    return nn.Sequential(PreActivationBlock(inputs, outputs, stride), *rest)
