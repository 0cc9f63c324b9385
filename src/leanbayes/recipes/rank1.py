"""Rank-1 BNN (Dusenberry et al. 2020): a mixture over input and output factors, from scratch.

Where the numbers come from (P: the paper, C: the authors' public code, I: inferred).

- Four members, one draw of each, four of Cauchy: P, section 4. Every row trains every member; draws
  within +-10; means at random signs; KL summed over members: C (`preset="paper"`).
- CIFAR: 128 new examples a step, SGD 0.1 with Nesterov momentum 0.9, an epoch of warm-up, a fifth
  at epochs 100, 200 and 225 of 250, prior std 0.1: C.
- ImageNet: 1024 new examples a step, rate 0.4, five epochs of warm-up, a tenth at epochs 45, 90 and
  120 of 135, prior std 0.05, means +1 with probability 0.75: C.
- The KL rises linearly by step over 200 of 250 and 90 of 135 epochs: C.
- The L2 of 1e-4 has no factor 1/2, hence a weight decay of 2e-4: C. Biases by member have the Kth
  part of it here.
- Cauchy: only that it has four draws is known: P; the rest as for Gaussians: I.
"""

from __future__ import annotations

from dataclasses import dataclass

from leanbayes.methods.rank_one import RankOne
from leanbayes.recipes import parts
from leanbayes.recipes.recipe import Part, Recipe, Recipes
from leanbayes.train.config import FitConfig

PAPER = "Dusenberry et al. 2020, Rank-1 BNN"


@dataclass(frozen=True)
class Task:
    """What differs between CIFAR and ImageNet."""

    words: str
    batch: int
    lr: float
    warmup: int
    marks: tuple[int, ...]
    epochs: int
    decay: float
    kl_epochs: int
    prior_std: float
    signs: float
    network: Part
    data: Part


def _cifar(words: str, data: Part) -> Task:
    numbers = (128, 0.1, 390, (100, 200, 225), 250, 0.2, 200, 0.1, 0.5)
    return Task(words, *numbers, parts.WRN_28_10, data)


TASKS = {
    "cifar10": _cifar("WRN-28-10 on CIFAR-10", parts.CIFAR10),
    "cifar100": _cifar("WRN-28-10 on CIFAR-100", parts.CIFAR100),
    "imagenet": Task(
        *("ResNet-50 on ImageNet", 1024, 0.4, 5 * 1251, (45, 90, 120), 135, 0.1, 90, 0.05, 0.75),
        *(parts.RESNET50, parts.IMAGENET),
    ),
}


def training(task: Task) -> FitConfig:
    """The rates, with the KL as it rises."""
    return FitConfig(
        epochs=task.epochs,
        batch_size=task.batch,
        lr=task.lr,
        weight_decay=2e-4,
        schedule="step",
        milestones=tuple(mark / task.epochs for mark in task.marks),
        decay=task.decay,
        warmup=task.warmup,
        kl_warmup=task.kl_epochs / task.epochs,
    )


def _build(name: str) -> Recipe:
    task, cauchy = TASKS[name.split("-")[1]], name.endswith("-cauchy")
    method = RankOne(
        members=4,
        law="cauchy" if cauchy else "normal",
        prior_std=task.prior_std,
        init_signs=task.signs,
        preset="paper",
    )
    law = "Cauchy" if cauchy else "Gaussian"
    notes = (
        f"Rank-1 BNN, {law}, from scratch: {task.words}, 4 members\n"
        "A step has four rows an example. Random signs cost 200 nats a factor against the prior at "
        "1 and fade in training; on a trained network take lb.RankOne() instead."
    )
    return Recipe(
        name=name,
        method=method,
        config=training(task),
        network=task.network,
        data=task.data,
        paper=PAPER,
        notes=notes,
    )


RECIPES: Recipes = {f"rank1-{data}{law}": _build for data in TASKS for law in ("", "-cauchy")}
