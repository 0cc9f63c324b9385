"""AlexNet, with the parameter names of torchvision's."""

from torch import Tensor, nn


class AlexNet(nn.Module):
    """Five convolutions and three linear layers.

    A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014,
    arXiv:1404.5997. The state_dict has torchvision's keys and shapes. It has 61,100,840 parameters
    at 1,000 classes and 18,307 layer inputs, the nodes of the iBNN paper.

    Args:
        num_classes: Number of logits.
        dropout: Probability of a zero before each of the first two linear layers; the published
            net has 0.5.

    Example:
        >>> AlexNet(num_classes=10).classifier[-1]
        Linear(in_features=4096, out_features=10, bias=True)
    """

    def __init__(self, num_classes: int = 1000, dropout: float = 0.0) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2)),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            *(nn.Dropout(dropout), nn.Linear(256 * 6 * 6, 4096), nn.ReLU()),
            *(nn.Dropout(dropout), nn.Linear(4096, 4096), nn.ReLU()),
            nn.Linear(4096, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], of at least 63 x 63 pixels, to logits [B, num_classes]."""
        out: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return out
