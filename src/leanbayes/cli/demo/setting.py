"""What the demo is run on: every number it depends on, its images and their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from leanbayes.data import digits_28, fashion_mini

HELD_OUT = 1000


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What differs by method, and why; chosen on the held-out training images by NLL.

    Members, factors and copies are trained at the rate of the network's own parameters,
    `Settings.tuning_lr`: at ten times that rate they learn the training images by heart.

    Attributes:
        scale_lr: Learning rate of log standard deviations (mean_field, partial). They grow by about
            this a step and stop before the KL has made them too wide for so few images: more epochs
            want less.
        partial_rate: Random fraction of the parameters; at the default of 1 % little is random.
        swag_lr: Of SGD in the collection; the spread grows with it.
        swag_epochs: Of the collection, after the fine-tuning.
        swag_every: Steps between two iterates.
        laplace_prior_std: Of the diagonal over all layers, which a wider prior ruins; the last
            layer with Kronecker factors takes the prior with the largest evidence.
        ensemble_members: Networks of the deep ensemble, each of them trained as the first one was.
    """

    scale_lr: float = 5e-3
    partial_rate: float = 0.05
    swag_lr: float = 2e-2
    swag_epochs: int = 3
    swag_every: int = 10
    laplace_prior_std: float = 0.04
    ensemble_members: int = 3


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every number that the demo depends on; the same for all methods but for `choices`.

    Chosen on the last 1,000 training images, which are not trained on.

    Attributes:
        seed: Of the weights, the order of the batches and the draws.
        width: Of the LeNet.
        train_images: Images to train on, from the first.
        test_images: Images to test on.
        ood_images: Handwritten digits.
        epochs: Of the training that all methods start from.
        lr: Its learning rate (Adam).
        tuning_epochs: Further epochs of every method, the baseline included.
        tuning_lr: Learning rate then, but for log standard deviations.
        batch: Images a step.
        samples: Draws a prediction.
        bins: Of the expected calibration error.
        choices: What differs by method.
    """

    seed: int = 0
    width: int = 1
    train_images: int = 5000
    test_images: int = 2000
    ood_images: int = 1797
    epochs: int = 20
    lr: float = 2e-3
    tuning_epochs: int = 5
    tuning_lr: float = 1e-4
    batch: int = 64
    samples: int = 20
    bins: int = 15
    choices: Choices = Choices()

    @property
    def weight_decay(self) -> float:
        """The prior N(0, 1), MeanField's default, for weights that no KL regularises."""
        return 1 / self.train_images


def smoke_settings(seed: int) -> Settings:
    """Seconds: enough to see that everything works, too little to compare methods."""
    return Settings(
        seed=seed,
        train_images=400,
        test_images=150,
        ood_images=100,
        epochs=5,
        tuning_epochs=1,
        batch=20,
        samples=5,
        choices=Choices(swag_epochs=1, swag_every=1, ensemble_members=2),
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
    def of(settings: Settings, *, held_out: bool = False) -> Data:
        """Read the embedded sets; `held_out` puts the last training images in place of the test."""
        full = fashion_mini()
        x_test, y_test = full.x_test[: settings.test_images], full.y_test[: settings.test_images]
        if held_out:
            x_test, y_test = full.x_train[-HELD_OUT:], full.y_train[-HELD_OUT:]
        return Data(
            full.x_train[: settings.train_images],
            full.y_train[: settings.train_images],
            x_test,
            y_test,
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
