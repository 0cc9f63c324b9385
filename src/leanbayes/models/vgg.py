"""VGG-16 without norm layers, in ImageNet's size and in CIFAR's."""

from typing import Final, Literal

from torch import Tensor, nn

from leanbayes.errors import ConfigError
from leanbayes.models.initialise import he_normal_

Size = Literal["small", "large"]

# Output channels of the convolutions between two poolings, in widths.
STAGES: Final = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))


class VGG16(nn.Module):
    """Thirteen 3x3 convolutions and three linear layers, without norm layers.

    K. Simonyan and A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
    Recognition", ICLR 2015. "large" is ImageNet's: 138,357,544 parameters at 1,000 classes, 36,995
    layer inputs, torchvision's state_dict. "small" is the CIFAR net of T. Trinh et al., "Scalable
    Bayesian neural networks by layer-wise input augmentation", 2020, arXiv:2010.13498, with linear
    layers 512-512-512-classes: 15,245,130 parameters at 10 classes, 5,251 layer inputs.

    Args:
        size: "small" or "large".
        num_classes: Number of logits; by default 10 (small) or 1,000 (large).
        dropout: Probability of a zero beside each of the first two linear layers; the published
            nets have 0.5.
        width: Channels of the first stage; the published nets have 64.

    Raises:
        ConfigError: The size has another name.

    Example:
        >>> VGG16("small").classifier[-1]
        Linear(in_features=512, out_features=10, bias=True)
    """

    def __init__(
        self,
        size: Size = "large",
        num_classes: int | None = None,
        dropout: float = 0.0,
        width: int = 64,
    ) -> None:
        super().__init__()
        self.features = _features(width)
        self.avgpool, self.classifier = _head(size, 8 * width, num_classes, dropout)
        he_normal_(self)
        for module in self.features:
            if isinstance(module, nn.Conv2d) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], of at least 32 x 32 pixels, to logits [B, num_classes]."""
        out: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return out


def _features(width: int) -> nn.Sequential:
    """Chain the stages; each ends by halving the size."""
    layers: list[nn.Module] = []
    inputs = 3
    for stage in STAGES:
        for outputs in (width * factor for factor in stage):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


def _head(
    size: Size, inputs: int, num_classes: int | None, dropout: float
) -> tuple[nn.Module, nn.Sequential]:
    """Make the last pooling and the linear layers.

    Dropout stands where each of the two published nets has it: before the linear layer in the
    small net, after its ReLU in the large one.
    """
    if size == "small":
        layers = [*_small_layer(inputs, dropout), *_small_layer(inputs, dropout)]
        last = nn.Linear(inputs, 10 if num_classes is None else num_classes)
        return nn.AdaptiveAvgPool2d(1), nn.Sequential(*layers, last)
    if size == "large":
        layers = [*_large_layer(inputs * 7 * 7, dropout), *_large_layer(4096, dropout)]
        last = nn.Linear(4096, 1000 if num_classes is None else num_classes)
        return nn.AdaptiveAvgPool2d(7), nn.Sequential(*layers, last)
    raise ConfigError(f'unknown size {size!r}; write size="small" or size="large"')


def _small_layer(width: int, dropout: float) -> list[nn.Module]:
    return [nn.Dropout(dropout), nn.Linear(width, width), nn.ReLU()]


def _large_layer(inputs: int, dropout: float) -> list[nn.Module]:
    return [nn.Linear(inputs, 4096), nn.ReLU(), nn.Dropout(dropout)]
