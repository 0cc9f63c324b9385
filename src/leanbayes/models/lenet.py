"""LeNet for 28x28 grey images, convolutional and fully connected."""

from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from leanbayes.models.initialise import he_normal_
from leanbayes.models.mlp import MLP


class LeNet(nn.Module):
    """Three convolutions and two linear layers, the small net of the iBNN experiments.

    Y. LeCun et al., "Gradient-Based Learning Applied to Document Recognition", Proc. IEEE 1998, in
    the ReLU form of T. Trinh et al., "Scalable Bayesian neural networks by layer-wise input
    augmentation", 2020, arXiv:2010.13498. Parameters, biases included, at width 1, 2, 4, 8: 41,806,
    165,202, 656,794 and 2,619,178.

    Args:
        width: Factor on every hidden channel and feature count.
        num_classes: Number of logits.

    Example:
        >>> sum(p.numel() for p in LeNet().parameters())
        41806
    """

    def __init__(self, width: int = 1, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6 * width, 5)
        self.conv2 = nn.Conv2d(6 * width, 16 * width, 5)
        self.conv3 = nn.Conv2d(16 * width, 120 * width, 4)
        self.fc1 = nn.Linear(120 * width, 64 * width)
        self.fc2 = nn.Linear(64 * width, num_classes)
        he_normal_(self)

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 1, 28, 28] to logits [B, num_classes]."""
        x = max_pool2d(self.conv1(x).relu(), 2)
        x = max_pool2d(self.conv2(x).relu(), 2)
        x = self.conv3(x).relu().flatten(1)
        x = self.fc1(x).relu()
        out: Tensor = self.fc2(x)
        return out


def lenet300(norm: bool = False, num_classes: int = 10) -> MLP:
    """Build LeNet-300-100, the MNIST net of the PBN experiments, for 784 features.

    266,610 parameters at 10 classes, 267,410 with a norm layer after both hidden layers.

    Args:
        norm: Whether a BatchNorm1d follows each hidden linear layer, as in the PBN experiments.
        num_classes: Number of logits.

    Example:
        >>> sum(p.numel() for p in lenet300(norm=True).parameters())
        267410
    """
    return MLP(784, (300, 100), num_classes, norm=norm)
