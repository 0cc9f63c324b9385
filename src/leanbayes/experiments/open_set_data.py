"""Data of open-set verification: known classes to train on, others to verify, foreign inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leanbayes.data import Data, Normalize, augment_named
from leanbayes.degrade import ood_inputs
from leanbayes.errors import ConfigError
from leanbayes.model import BayesianModel

Part = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenSetData:
    """Images [N, C, H, W] as a network takes them, and their labels.

    Attributes:
        train: Training images of the known classes, which are numbered from 0 on.
        test: Test images of the known classes.
        others: Test images of all other classes, with the labels of the file.
        normalize: How pixels were scaled.
    """

    train: Part
    test: Part
    others: Part
    normalize: Normalize | None

    @staticmethod
    def of(
        data: Data, known: Sequence[int], most: int | None = None, device: str = "cpu"
    ) -> OpenSetData:
        """Cut a data set by class.

        Args:
            data: Labelled images in memory, with a test part.
            known: Labels to train on; the order is that of the network's outputs.
            most: Images a class and part, the first ones; all of them if None.
            device: Where the tensors lie, so that batches are picked and changed there.
        """
        train, test = (_checked(part, data.name) for part in (data.train, data.test))
        every = range(len(data.classes))
        others = [label for label in every if label not in known]
        wrong = [label for label in known if label not in every]
        if wrong or len(set(known)) != len(known) or min(len(known), len(others)) < 2:
            raise ConfigError(
                f"known={list(known)}: expected different labels from 0 to {len(every) - 1}, at "
                "least two of them, and at least two left for the pairs"
            )
        return OpenSetData(
            train=_sent(_renumbered(_of_classes(train, known, most), known), device),
            test=_sent(_renumbered(_of_classes(test, known, most), known), device),
            others=_sent(_of_classes(test, others, most), device),
            normalize=data.normalize,
        )

    def held_out(self, part: float) -> OpenSetData:
        """The training images alone, cut again: settings are chosen by it, no test image is seen.

        The last two of the known classes play the others; of the rest the last images are the test.

        Args:
            part: Share of the images that are tested on.
        """
        x, y = self.train
        inside = y < int(y.max()) - 1
        cut = int(inside.sum() * (1 - part))
        return OpenSetData(
            train=(x[inside][:cut], y[inside][:cut]),
            test=(x[inside][cut:], y[inside][cut:]),
            others=(x[~inside], y[~inside]),
            normalize=self.normalize,
        )

    def noisy(self, x: Tensor, eps: float) -> Tensor:
        """Images plus U(-eps, eps) in pixels of [0, 1], by `lb.ood_inputs`."""
        scale = self.normalize
        mean, std = (None, None) if scale is None else (scale.mean, scale.std)
        return ood_inputs(x, eps=eps, mean=mean, std=std)

    def noisy_batches(self, eps: float, rows: int, augment: str) -> NoisyBatches:
        """Noisy training images for the regulariser, with new noise every epoch.

        They are augmented as clean ones are: otherwise a network would learn to be unsure of whole
        images without a border, which is what all test images are.
        """
        change = augment_named(augment, normalize=self.normalize)
        return NoisyBatches(self, lambda x: self.noisy(change(x), eps), rows)


@dataclass(frozen=True, eq=False)
class NoisyBatches:
    """Training images in a new order every epoch, changed where they lie.

    Attributes:
        data: What is read.
        change: What is done to a batch.
        rows: Of a batch; the rest of an epoch is left out.
    """

    data: OpenSetData
    change: Callable[[Tensor], Tensor]
    rows: int

    def __len__(self) -> int:
        return len(self.data.train[1]) // self.rows

    def __iter__(self) -> Iterator[Part]:
        x, y = self.data.train
        order = torch.randperm(len(y)).to(y.device)
        for step in range(len(self)):
            chosen = order[step * self.rows : (step + 1) * self.rows]
            yield self.change(x[chosen]), y[chosen]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What may be done to an image.

    Attributes:
        eps: Largest change of a pixel of [0, 1].
        samples: Draws of the network, for who looks at it.
        seed: Of everything that is drawn.
        most: Images that are attacked, the first ones; all if None.
        steps: Of an attack; the paper's for CIFAR-10.
    """

    eps: float
    samples: int
    seed: int
    most: int | None = None
    steps: int = 20


Foreign = Callable[[BayesianModel, OpenSetData, Budget], Tensor]


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw from a seed on the CPU and on a device; their generators come back afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


def noisy_training(_model: BayesianModel, data: OpenSetData, budget: Budget) -> Tensor:
    """Training images under noise, as many as there are test images, if there are.

    A network is surer of images it was trained on, whatever the noise: one that does not see the
    noise has an average precision below chance.
    """
    x = data.train[0]
    with seeded(budget.seed, x.device):
        rows = torch.randperm(len(x))[: len(data.test[0])].to(x.device)
        return data.noisy(x[rows], budget.eps)


def noisy_test(_model: BayesianModel, data: OpenSetData, budget: Budget) -> Tensor:
    """The test images under noise: nothing but the noise tells them from clean ones."""
    with seeded(budget.seed, data.test[0].device):
        return data.noisy(data.test[0], budget.eps)


def _checked(part: Any, name: str) -> Part:
    pair = isinstance(part, tuple) and all(isinstance(x, Tensor) for x in part)
    if not (pair and part[0].dim() == 4 and part[1].dim() == 1):
        raise ConfigError(
            f"reader {name!r} gives no labelled images in memory for training and test; write "
            "reader=cifar10 or reader=npz with x_train, y_train, x_test, y_test"
        )
    x, y = part
    return x, y


def _of_classes(part: Part, labels: Sequence[int], most: int | None) -> Part:
    """The rows of some classes in their order, of every class the first `most`."""
    x, y = part
    rows = torch.cat([(y == label).nonzero().flatten()[:most] for label in labels]).sort().values
    return x[rows], y[rows]


def _sent(part: Part, device: str) -> Part:
    return part[0].to(device), part[1].to(device)


def _renumbered(part: Part, known: Sequence[int]) -> Part:
    """Labels by their place in `known`."""
    place = torch.full((max(known) + 1,), -1)
    place[list(known)] = torch.arange(len(known))
    return part[0], place[part[1].long()]
