"""The model zoo: plain PyTorch networks to convert, one file an architecture."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from torch import nn

from leanbayes.models.lenet import LeNet
from leanbayes.models.mlp import MLP
from leanbayes.models.resnet import ResNet, resnet18, resnet50
from leanbayes.models.resnet_cifar import CifarResNet, resnet20, resnet56
from leanbayes.models.wide_resnet import WideResNet

__all__ = [
    "MLP",
    "MODELS",
    "CifarResNet",
    "LeNet",
    "ResNet",
    "WideResNet",
    "create",
    "resnet18",
    "resnet20",
    "resnet50",
    "resnet56",
]

MODELS: Final[Mapping[str, Callable[..., nn.Module]]] = {
    "lenet": LeNet,
    "mlp": MLP,
    "resnet18": resnet18,
    "resnet20": resnet20,
    "resnet50": resnet50,
    "resnet56": resnet56,
    "wide_resnet": WideResNet,
}


def create(name: str, **options: Any) -> nn.Module:
    """Build a network by name, with fresh weights.

    Args:
        name: A key of MODELS.
        **options: The arguments of that network, by name.

    Raises:
        ValueError: No network has this name; the message lists the nearest names.

    Example:
        >>> net = create("resnet18", width=16, num_classes=10, stem="cifar")
        >>> net.fc
        Linear(in_features=128, out_features=10, bias=True)
    """
    if name not in MODELS:
        nearest = get_close_matches(name.lower(), MODELS, n=3) or sorted(MODELS)
        raise ValueError(
            f"unknown model {name!r}; nearest: {', '.join(nearest)}. "
            f'Write leanbayes.models.create("{nearest[0]}", ...)'
        )
    return MODELS[name](**options)
