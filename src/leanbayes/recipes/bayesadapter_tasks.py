"""What differs between the data sets of BayesAdapter."""

from __future__ import annotations

from dataclasses import dataclass

from leanbayes.recipes.parts import CIFAR10, FACES, IMAGENET, MOBILENET, RESNET50, WRN_28_10
from leanbayes.recipes.recipe import Part

PAPER = "Deng et al. 2022, BayesAdapter"


@dataclass(frozen=True)
class Task:
    """A data set with its network; `spread` is that of the candidates at the start."""

    words: str
    epochs: int
    decay: float
    num_data: int
    spread: float
    network: Part
    data: Part
    nesterov: bool = False
    augment: str | None = None


TASKS = {
    "cifar10": Task(
        *("WRN-28-10 on CIFAR-10", 12, 2e-4, 50_000, 0.2, WRN_28_10, CIFAR10),
        nesterov=True,
        augment="crop+flip+cutout:16",
    ),
    "imagenet": Task("ResNet-50 on ImageNet", 4, 1e-4, 1_281_167, 0.1, RESNET50, IMAGENET),
    "casia": Task("MobileNetV2 on CASIA faces", 4, 5e-4, 490_623, 0.1, MOBILENET, FACES),
}
