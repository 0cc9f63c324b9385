"""PBN (Abboud et al.): noise on the parameters that the loss feels most, from a trained network.

Where the numbers come from (P: the paper, I: inferred; there is no public code).

- MNIST and the small ResNet: batch 50, SGD 0.01 with momentum 0.9 and a fixed rate, decay 1e-5, 50
  epochs: P, H.2.1 and H.3.1. ResNet-18: batch 200, decay 1e-4, five epochs of linear warm-up to
  1.6, a tenth from epoch 30 on, 100 epochs with noise: P, H.3.2.
- Rates of random parameters 10 % (MNIST; 0.1 to 95 % are tried) and 5 % (ResNet-18): P, section 4.
- Five draws a step and a prediction; the weight of the KL from 0.2 to 0.01 over the epochs: P, H.6.
  The printed formula runs the other way; the text is followed.
- I: the KL is averaged over the random entries of a tensor, summed over tensors and not divided by
  the number of data, the one reading under which such weights have a sensible size; `kl_weight` is
  the number of data, which takes the division back.
- Not here: Cityscapes, whose rate follows the validation loss and whose batch is not given;
  ImageNet, of which the paper gives only the rate of 1 %.
"""

from __future__ import annotations

from dataclasses import dataclass

from leanbayes.methods.partial import Partial
from leanbayes.recipes.recipe import Recipe, Recipes
from leanbayes.schedule import annealed
from leanbayes.train.config import FitConfig

PAPER = "Abboud et al., sensitivity-guided partial BNN (PBN)"


@dataclass(frozen=True)
class _Task:
    """What differs between the paper's data sets."""

    words: str
    rate: float
    num_data: int
    epochs: int
    batch: int
    lr: float
    decay: float
    warmup_epochs: int = 0
    milestones: tuple[float, ...] = ()

    @property
    def steps_per_epoch(self) -> int:
        """Batches that hold all data."""
        return -(-self.num_data // self.batch)


TASKS = {
    "pbn-mnist": _Task("LeNet-300-100 on MNIST", 0.1, 60_000, 50, 50, 0.01, 1e-5),
    "pbn-cifar10-small": _Task("a small ResNet on CIFAR-10", 0.1, 50_000, 50, 50, 0.01, 1e-5),
    "pbn-cifar10": _Task("ResNet-18 on CIFAR-10", 0.05, 50_000, 100, 200, 1.6, 1e-4, 5, (0.3,)),
}


def _build(name: str) -> Recipe:
    task = TASKS[name]
    config = FitConfig(
        epochs=task.epochs,
        batch_size=task.batch,
        lr=task.lr,
        momentum=0.9,
        nesterov=False,
        weight_decay=task.decay,
        schedule="step" if task.milestones else "constant",
        milestones=task.milestones,
        decay=0.1,
        warmup=task.warmup_epochs * task.steps_per_epoch,
        samples=5,
        kl_weight=float(task.num_data),
        kl_schedule=annealed(epochs=task.epochs, steps_per_epoch=task.steps_per_epoch),
    )
    notes = (
        f"PBN at {task.rate:.0%}, from a trained network: {task.words}\n"
        "Bring data to lb.bayesianize, by which parameters are chosen. The schedule of the KL "
        f"counts {task.steps_per_epoch} steps an epoch. Tensors with random entries have no decay."
    )
    method = Partial(rate=task.rate, preset="paper")
    return Recipe(name=name, method=method, config=config, paper=PAPER, notes=notes)


RECIPES: Recipes = dict.fromkeys(TASKS, _build)
