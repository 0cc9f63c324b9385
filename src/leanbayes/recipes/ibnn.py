"""iBNN (Trinh et al. 2020): noise on the inputs of every layer, from scratch or trained.

Where the numbers come from (P: the paper, C: the authors' public code, I: inferred).

- Rates, prior, spread of the means and weight decay: P, table 2. 300 epochs, batch 128, SGD with
  Nesterov momentum 0.9, two draws a step, scales from |N(0.05, 0.02^2)|: P, section 3.3, and C.
- The network's rate stays until half of the run, falls linearly to a hundredth within the next 120
  epochs and stays there; that of the noise is constant: P, section 3.3.
- The KL rises linearly over the first 200 epochs: P; by epoch in the authors' code, by step here.
- Members 4, 8 and 16 are reported: P; 16, the best of them, stands here.
- The KL of the average draw, and rows dealt to members in turn: C (`preset="paper"`).
- ImageNet: 15 epochs, batch 256, rates 1e-4 and 0.2, the latter to 0.05 within 4 epochs from epoch
  6 on, prior N(1, 0.1), no more: P, appendix. I: 0.1 is a standard deviation as everywhere else;
  means spread by 0.05, since 0.5 destroys a trained network; decay 1e-4; two draws.
"""

from __future__ import annotations

from dataclasses import dataclass

from leanbayes.methods.implicit import Implicit
from leanbayes.recipes.recipe import Recipe, Recipes
from leanbayes.train.config import FitConfig

PAPER = "Trinh et al. 2020, iBNN"
MEMBERS = 16


@dataclass(frozen=True)
class _Column:
    """A column of table 2."""

    words: str
    lr: float
    posterior_lr: float
    spread: float
    prior_std: float
    decay: float


TABLE = {
    "ibnn-vgg16-cifar10": _Column("VGG-16 on CIFAR-10", 0.05, 1.2, 0.75, 0.3, 5e-4),
    "ibnn-vgg16-cifar100": _Column("VGG-16 on CIFAR-100", 0.05, 1.6, 0.75, 0.3, 3e-4),
    "ibnn-wrn-cifar10": _Column("WRN-28-10 on CIFAR-10", 0.1, 2.4, 0.5, 0.1, 5e-4),
    "ibnn-wrn-cifar100": _Column("WRN-28-10 on CIFAR-100", 0.1, 4.8, 0.5, 0.1, 5e-4),
}


def _scratch(name: str) -> Recipe:
    """A network from scratch, by table 2."""
    column = TABLE[name]
    method = Implicit(
        members=MEMBERS, prior_std=column.prior_std, init_std=column.spread, preset="paper"
    )
    config = FitConfig(
        epochs=300,
        batch_size=128,
        lr=column.lr,
        posterior_lr=column.posterior_lr,
        weight_decay=column.decay,
        schedule="linear",
        posterior_schedule="constant",
        span=(0.5, 0.9),
        floor=0.01,
        samples=2,
        kl_warmup=200 / 300,
    )
    notes = (
        f"iBNN from scratch: {column.words}, {MEMBERS} members\n"
        "The paper reports 4, 8 and 16 members. Its networks have no dropout here; the rate of the "
        "noise is made for plain SGD: with another optimiser take that of the network."
    )
    return Recipe(name=name, method=method, config=config, paper=PAPER, notes=notes)


def _trained(name: str) -> Recipe:
    """A trained network, by the appendix."""
    method = Implicit(members=MEMBERS, prior_std=0.1, init_std=0.05, preset="paper")
    config = FitConfig(
        epochs=15,
        batch_size=256,
        lr=1e-4,
        posterior_lr=0.2,
        weight_decay=1e-4,
        schedule="constant",
        posterior_schedule="linear",
        span=(6 / 15, 10 / 15),
        floor=0.25,
        samples=2,
    )
    notes = (
        f"iBNN from a trained network: ResNet-50 on ImageNet, {MEMBERS} members\n"
        "The paper names neither the spread of the means, the weight decay nor the draws a step."
    )
    return Recipe(name=name, method=method, config=config, paper=PAPER, notes=notes)


RECIPES: Recipes = {**dict.fromkeys(TABLE, _scratch), "ibnn-imagenet": _trained}
