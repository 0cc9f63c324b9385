"""MobileNetV2, with the parameter names of torchvision's."""

from typing import Final

from torch import Tensor, nn

from leanbayes.errors import ConfigError
from leanbayes.models.initialise import he_normal_

# Of each stage: expansion, output channels, blocks, stride of the first block.
STAGES: Final = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class InvertedResidual(nn.Module):
    """1x1 expansion, 3x3 depthwise convolution, 1x1 projection; a sum where shapes agree."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        expand = [] if expansion == 1 else [_conv(inputs, hidden, 1)]
        depthwise = _conv(hidden, hidden, 3, stride, groups=hidden)
        # The projection is linear: ReLU would destroy what few channels carry.
        project = nn.Conv2d(hidden, outputs, 1, bias=False)
        self.conv = nn.Sequential(*expand, depthwise, project, nn.BatchNorm2d(outputs))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, inputs, H, W] to [B, outputs, H / stride, W / stride]."""
        out: Tensor = self.conv(x)
        return x + out if self.residual else out


class MobileNetV2(nn.Module):
    """Seventeen inverted residual blocks between two convolutions, 1/32 of the image's size.

    M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018. The
    state_dict has torchvision's keys and shapes; 3,504,872 parameters at 1,000 classes.

    Args:
        num_classes: Number of logits.
        width: Factor on every channel count; counts are rounded to multiples of 8.
        dropout: Probability of a zero before the linear layer; the published net has 0.2.

    Raises:
        ConfigError: The width is not positive.

    Example:
        >>> MobileNetV2(num_classes=10).classifier[-1]
        Linear(in_features=1280, out_features=10, bias=True)
    """

    def __init__(self, num_classes: int = 1000, width: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()
        if width <= 0:
            raise ConfigError(f"width must be positive, got {width}; write width=1.0")
        last = _divisible(1280 * max(1.0, width))
        self.features = _features(width, last)
        linear = nn.Linear(last, num_classes)
        self.classifier = nn.Sequential(nn.Dropout(dropout), linear)
        he_normal_(self)
        nn.init.normal_(linear.weight, std=0.01)
        nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to logits [B, num_classes]."""
        out: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return out


def _features(width: float, last: int) -> nn.Sequential:
    """Chain the first convolution, all blocks and the last convolution."""
    inputs = _divisible(32 * width)
    layers: list[nn.Module] = [_conv(3, inputs, 3, stride=2)]
    for expansion, channels, blocks, stride in STAGES:
        outputs = _divisible(channels * width)
        for block in range(blocks):
            layers.append(InvertedResidual(inputs, outputs, 1 if block else stride, expansion))
            inputs = outputs
    return nn.Sequential(*layers, _conv(inputs, last, 1))


def _conv(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Make a size-preserving convolution, its norm and ReLU6."""
    conv = nn.Conv2d(
        inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False
    )
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())


def _divisible(channels: float) -> int:
    """Round to a multiple of 8 of at least 8, up again where more than a tenth would be lost."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded
