"""What the demo is run on: every number it depends on, its images and their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from leanbayes.data import digits_28, fashion_mini


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every number that the demo depends on; the same for all methods.

    Chosen on the last 1,000 training images, which are not trained on.
    Standard deviations grow by about `posterior_lr` a step of Adam, in the logarithm, and here they
    stop before the KL has made them too wide for so few images: more epochs want a smaller rate.

    Attributes:
        seed: Of the weights, the order of the batches and the draws.
        width: Of the LeNet.
        train_images: Images to train on, from the first.
        test_images: Images to test on.
        ood_images: Handwritten digits.
        epochs: Of the training that all methods start from.
        lr: Its learning rate (Adam).
        tuning_epochs: Further epochs of every method, the baseline included.
        tuning_lr: Learning rate of the network's own parameters then.
        posterior_lr: Learning rate of the parameters that a method adds.
        batch: Images a step.
        samples: Draws a prediction.
        bins: Of the expected calibration error.
    """

    seed: int = 0
    width: int = 2
    train_images: int = 5000
    test_images: int = 2000
    ood_images: int = 1797
    epochs: int = 12
    lr: float = 2e-3
    tuning_epochs: int = 6
    tuning_lr: float = 1e-4
    posterior_lr: float = 5e-3
    batch: int = 64
    samples: int = 20
    bins: int = 15

    @property
    def weight_decay(self) -> float:
        """The prior N(0, 1), MeanField's default, for weights that no KL regularises."""
        return 1 / self.train_images


def smoke_settings(seed: int) -> Settings:
    """A few seconds: enough to see that everything works, too little to compare methods."""
    return Settings(
        seed=seed,
        width=1,
        train_images=1200,
        test_images=300,
        ood_images=300,
        epochs=1,
        tuning_epochs=1,
        batch=16,
        samples=5,
    )


@dataclass(frozen=True)
class Data:
    """Images to train on, to test on, and of another world."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    x_ood: Tensor
    classes: tuple[str, ...]

    @staticmethod
    def of(settings: Settings) -> Data:
        """Read the embedded sets."""
        full = fashion_mini()
        return Data(
            full.x_train[: settings.train_images],
            full.y_train[: settings.train_images],
            full.x_test[: settings.test_images],
            full.y_test[: settings.test_images],
            digits_28()[: settings.ood_images],
            full.classes,
        )


@dataclass(frozen=True)
class Batches:
    """Epochs of batches, each in a new order, the same for every method.

    The order has a generator of its own, so it does not depend on what a method draws.
    """

    x: Tensor
    y: Tensor
    epochs: int
    settings: Settings

    def __len__(self) -> int:
        return self.epochs * -(-len(self.x) // self.settings.batch)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.Generator().manual_seed(self.settings.seed)
        for _ in range(self.epochs):
            shuffled = torch.randperm(len(self.x), generator=order)
            for rows in torch.split(shuffled, self.settings.batch):
                yield self.x[rows], self.y[rows]
