"""Initial weights shared by the convolutional networks of the zoo."""

from torch import nn


def he_normal_(net: nn.Module) -> None:
    """Draw every Conv2d weight from N(0, 2 / (kernel area x output channels)), in place.

    K. He et al., "Delving Deep into Rectifiers", ICCV 2015, fan-out form: it keeps the variance of
    the gradients through ReLU layers. Other layers and biases keep PyTorch's initial values.

    Example:
        >>> he_normal_(nn.Conv2d(3, 16, 3))
    """
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
