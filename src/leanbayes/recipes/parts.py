"""Networks and data of the papers, each with a small form that runs in a second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leanbayes.recipes.recipe import MADE_UP, Part

GROUPED = "leanbayes.models.grouped:GroupedMLP"


def _wide(width: int) -> Part:
    return Part(
        "wide_resnet", {"depth": 28, "width": width}, ("wide_resnet", {"depth": 10, "width": 1})
    )


def _source(name: str, shape: Sequence[int], options: Any = None, **small: Any) -> Part:
    return Part(name, options or {}, (MADE_UP, {"shape": list(shape), "rows": 32, **small}))


def vgg(dropout: float = 0.0) -> Part:
    """VGG-16 for CIFAR as in iBNN; the point estimate has dropout, the others none."""
    options: dict[str, Any] = {"size": "small"} | ({"dropout": dropout} if dropout else {})
    return Part("vgg16", options, ("vgg16", {**options, "width": 4}))


def lenet(width: int = 1) -> Part:
    """LeNet as in iBNN."""
    return Part("lenet", {"width": width}, ("lenet", {}))


WRN_28_10, WRN_28_5 = _wide(10), _wide(5)
RESNET18 = Part("resnet18", {}, ("resnet18", {"width": 4, "stem": "cifar"}))
RESNET18_CONV7 = Part("resnet18", {"stem": "conv7"}, ("resnet18", {"width": 4, "stem": "conv7"}))
RESNET50 = Part("resnet50", {}, ("resnet18", {"width": 4, "stem": "cifar"}))  # 53 layers take long
RESNET_SMALL = Part("resnet_small", {}, ("resnet_small", {"widths": [4, 4, 8, 8]}))
MOBILENET = Part("mobilenet_v2", {}, ("mobilenet_v2", {"width": 0.25}))
PYRAMIDNET = Part(
    "pyramidnet110_270", {}, ("leanbayes.models:PyramidNet", {"depth": 8, "alpha": 6})
)
LENET300 = Part("lenet300", {"norm": True}, ("lenet300", {"norm": True}))
UNET = Part("unet", {}, ("unet", {"widths": [4, 8]}))
LSTM = Part(
    "lstm_classifier",
    {"events": 411, "num_classes": 1, "width": 64},
    ("lstm_classifier", {"events": 20, "num_classes": 1, "width": 8}),
)
HIDDEN_50 = Part(
    GROUPED,
    {"groups": 1, "inputs": 13, "hidden": [50], "norm_scale": 0.2},
    (GROUPED, {"groups": 1, "inputs": 3, "hidden": [8], "norm_scale": 0.2}),
)

CIFAR10 = _source("cifar10", (3, 16, 16))
CIFAR10_WHOLE = _source("cifar10", (3, 32, 32))  # VGG-16 halves the size five times
CIFAR100 = _source("cifar100", (3, 16, 16), classes=100)
CIFAR100_WHOLE = _source("cifar100", (3, 32, 32), classes=100)
SVHN = _source("svhn", (3, 32, 32))
IMAGENET = _source("imagenet", (3, 8, 8), classes=20)
FACES = _source("image_folder", (3, 8, 8), classes=20)
MNIST = _source("mnist", (1, 28, 28))
FASHION = _source("fashion_mnist", (1, 28, 28))
CITYSCAPES = _source(
    "cityscapes", (3, 16, 32), {"size": [256, 512]}, task="segmentation", classes=20
)
BOSTON = _source("uci", (3,), {"name": "boston"}, task="regression")
PHYSIONET = _source(
    "physionet2012",
    (12,),
    {"bins": 10, "length": 256, "window": 120, "validation": 800},
    task="binary",
    ids=20,
)
