"""The model zoo: plain PyTorch networks to convert, one file an architecture."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import signature
from typing import Any, Final

from torch import nn

from leanbayes.errors import ConfigError
from leanbayes.models.alexnet import AlexNet
from leanbayes.models.foreign import checked, foreign, is_foreign
from leanbayes.models.lenet import LeNet, lenet300
from leanbayes.models.mlp import MLP
from leanbayes.models.mobilenet import MobileNetV2
from leanbayes.models.pyramidnet import PyramidNet, pyramidnet110_270
from leanbayes.models.recurrent import LSTMClassifier
from leanbayes.models.resnet import ResNet, SmallResNet, resnet18, resnet50
from leanbayes.models.resnet_cifar import CifarResNet, resnet20, resnet56
from leanbayes.models.unet import UNet
from leanbayes.models.vgg import VGG16
from leanbayes.models.vit import VisionTransformer, vit_tiny
from leanbayes.models.weights import LoadedWeights, load_weights
from leanbayes.models.wide_resnet import WideResNet

__all__ = [
    "MLP",
    "MODELS",
    "VGG16",
    "AlexNet",
    "CifarResNet",
    "LSTMClassifier",
    "LeNet",
    "LoadedWeights",
    "MobileNetV2",
    "PyramidNet",
    "ResNet",
    "SmallResNet",
    "UNet",
    "VisionTransformer",
    "WideResNet",
    "create",
    "lenet300",
    "load_weights",
    "maker",
    "pyramidnet110_270",
    "resnet18",
    "resnet20",
    "resnet50",
    "resnet56",
    "vit_tiny",
]

MODELS: Final[Mapping[str, Callable[..., nn.Module]]] = {
    "alexnet": AlexNet,
    "lenet": LeNet,
    "lenet300": lenet300,
    "lstm_classifier": LSTMClassifier,
    "mlp": MLP,
    "mobilenet_v2": MobileNetV2,
    "pyramidnet110_270": pyramidnet110_270,
    "resnet18": resnet18,
    "resnet20": resnet20,
    "resnet50": resnet50,
    "resnet56": resnet56,
    "resnet_small": SmallResNet,
    "unet": UNet,
    "vgg16": VGG16,
    "vit_tiny": vit_tiny,
    "wide_resnet": WideResNet,
}


def create(name: str, **options: Any) -> nn.Module:
    """Build a network by name; its weights are fresh.

    Args:
        name: A key of MODELS; or a class or function as "package.module:attribute"; or "timm:NAME";
            or "transformers:NAME" (options `task`, `pretrained` and those of the model's settings).
            The two libraries load weights with `pretrained=True`. A path runs the code it names.
        **options: The arguments of that network, by name.

    Raises:
        ConfigError: No network has this name (the message lists the nearest names), a library is
            not installed, or an option has a value that the network does not take.
        TypeError: An option is unknown or missing; the message lists the network's options.

    Example:
        >>> net = create("resnet18", width=16, num_classes=10, stem="cifar")
        >>> net.fc
        Linear(in_features=128, out_features=10, bias=True)
        >>> create("torch.nn:Linear", in_features=4, out_features=2)
        Linear(in_features=4, out_features=2, bias=True)
    """
    make = maker(name)
    _check_options(name, make, options)
    return checked(name, make(**options))


def maker(name: str) -> Callable[..., nn.Module]:
    """The class or function that `create` calls, for its signature.

    Example:
        >>> maker("wide_resnet").__name__
        'WideResNet'
    """
    if is_foreign(name):
        return foreign(name)
    if name not in MODELS:
        nearest = get_close_matches(name.lower(), MODELS, n=3) or sorted(MODELS)
        raise ConfigError(
            f"unknown model {name!r}; nearest: {', '.join(nearest)}. "
            f'Write leanbayes.models.create("{nearest[0]}", ...)'
        )
    return MODELS[name]


def _check_options(name: str, make: Callable[..., nn.Module], options: Mapping[str, Any]) -> None:
    """Refuse unknown and missing options before anything is built."""
    try:
        expected = signature(make)
    except ValueError:  # compiled code without a signature checks for itself
        return
    try:
        expected.bind(**options)
    except TypeError as error:
        known = ", ".join(expected.parameters)
        raise TypeError(f"model {name!r}: {error}; write only its options: {known}") from None
