"""PyramidNet: a residual network whose width grows a little in every block."""

from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, pad

from leanbayes.errors import ConfigError
from leanbayes.models.initialise import he_normal_


class PyramidBlock(nn.Module):
    """Norm, 3x3 convolution, norm, ReLU, 3x3 convolution, norm; a shortcut without parameters.

    No activation precedes the first convolution and none follows the sum.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, inputs, H, W] to [B, outputs, H / stride, W / stride]."""
        hidden = self.bn2(self.conv1(self.bn1(x))).relu()
        out: Tensor = self.bn3(self.conv2(hidden))
        return out + self._shortcut(x)

    def _shortcut(self, x: Tensor) -> Tensor:
        """Average over the stride and add zero channels at the end."""
        stride = self.conv1.stride[0]
        if stride > 1:
            # An odd size is rounded up, as the convolution does.
            x = avg_pool2d(x, stride, ceil_mode=True)
        return pad(x, (0, 0, 0, 0, 0, self.conv1.out_channels - self.conv1.in_channels))


class PyramidNet(nn.Module):
    """A residual network of three stages; block i has round(16 + alpha i / blocks) channels.

    D. Han, J. Kim and J. Kim, "Deep Pyramidal Residual Networks", CVPR 2017, without bottlenecks.
    The depth 110 with alpha 270 is the CIFAR-100 net of the EMP paper (A. Chang et al., "Ensemble
    Model Patching", 2019): 28,511,307 parameters, 49,798 of them in norm layers.

    Args:
        depth: Number of layers, 6 n + 2 for n blocks a stage.
        alpha: Channels that the whole net adds to the 16 of its first convolution.
        num_classes: Number of logits.

    Raises:
        ConfigError: The depth is not 8, 14, 20, ..., or alpha is negative.

    Example:
        >>> PyramidNet(depth=8, alpha=6).fc
        Linear(in_features=22, out_features=100, bias=True)
    """

    def __init__(self, depth: int = 110, alpha: int = 270, num_classes: int = 100) -> None:
        super().__init__()
        widths = _channels(depth, alpha)
        blocks = len(widths) // 3
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, widths[:blocks], stride=1)
        self.layer2 = _stage(widths[blocks - 1], widths[blocks : 2 * blocks], stride=2)
        self.layer3 = _stage(widths[2 * blocks - 1], widths[2 * blocks :], stride=2)
        self.bn_final = nn.BatchNorm2d(widths[-1])
        self.fc = nn.Linear(widths[-1], num_classes)
        he_normal_(self)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to logits [B, num_classes]."""
        x = self.bn1(self.conv1(x))
        x = self.layer3(self.layer2(self.layer1(x)))
        out: Tensor = self.fc(self.bn_final(x).relu().mean((2, 3)))
        return out


def pyramidnet110_270(num_classes: int = 100) -> PyramidNet:
    """Build PyramidNet-110 with alpha 270: 28,511,307 parameters at 100 classes."""
    return PyramidNet(110, 270, num_classes)


def _channels(depth: int, alpha: int) -> list[int]:
    """Output channels of every block."""
    blocks, rest = divmod(depth - 2, 6)
    if blocks < 1 or rest:
        raise ConfigError(f"depth must be 6 n + 2 with n >= 1, got {depth}; write depth=110")
    if alpha < 0:
        raise ConfigError(f"alpha must not be negative, got {alpha}; write alpha=270")
    return [round(16 + alpha * i / (3 * blocks)) for i in range(1, 3 * blocks + 1)]


def _stage(inputs: int, widths: list[int], stride: int) -> nn.Sequential:
    """Chain blocks of the given widths; the first one changes the size."""
    sources = [inputs, *widths[:-1]]
    strides = [stride] + [1] * (len(widths) - 1)
    return nn.Sequential(*map(PyramidBlock, sources, widths, strides))
