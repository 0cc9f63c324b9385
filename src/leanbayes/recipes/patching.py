"""EMP and ECMP (Chen and Shyu 2019): banks of norm and output layers, from scratch.

Where the numbers come from (P: the paper, I: inferred; there is no public code).

- Five copies of norm layers and the output, or of norms alone: P, section 5 and appendix D.3.
- ImageNet: ResNet-18, 100 epochs; CIFAR-100: PyramidNet-110-270, 400 epochs; batch 256: P, D.3 and
  D.5. Adam with its defaults, hence a constant rate of 1e-3, one draw a batch: P, section 5.
- Penalty `0.001 / batch * |w|^2` of every copy and every shared tensor: P, appendix C.1. A weight
  decay is twice that. The right share of a copy is the Kth part, which the parameter groups give;
  the prior brings what is missing to the paper's: `1 / (num_data K prior_std^2) = decay (K - 1) /
  K`.
- Regression: one hidden layer, batch 100, 4000 epochs, decay 0.01, norms alone, noise precision
  0.1, 10,000 draws: P, appendix D.7. That decay stands beside the squared error (appendix C.1); the
  Gaussian's `precision / 2` times the squared error takes as much of the decay, or 0.0005. The size
  of the data differs, so that copies have the Kth part of the decay there and no prior.
- Copies start at N(1, 0.1^2) of the layer's own values: I; the paper says 'randomly'.
"""

from __future__ import annotations

import math
from typing import Literal

from leanbayes.methods.patching import Patching
from leanbayes.recipes.recipe import Recipe, Recipes
from leanbayes.train.config import FitConfig

PAPER = "Chen and Shyu 2019, ensemble model patching"
COPIES = 5
DECAY = 2 * 0.001 / 256
SQUARES_DECAY, PRECISION = 0.01, 0.1  # of the regressions
Where = Literal["norm", "norm+output"]
# Words, epochs, number of data and layers by task.
TASKS: dict[str, tuple[str, int, int, Where]] = {
    "imagenet": ("ResNet-18 on ImageNet", 100, 1_281_167, "norm+output"),
    "imagenet-norm": ("ResNet-18 on ImageNet, norms alone", 100, 1_281_167, "norm"),
    "cifar100": ("PyramidNet-110-270 on CIFAR-100", 400, 50_000, "norm+output"),
}


def prior_std(decay: float, copies: int, num_data: int) -> float:
    """The prior that makes the decay of a copy whole, beside the Kth part of its group.

    Example:
        >>> std = prior_std(0.002, copies=5, num_data=1000)
        >>> round(0.002 / 5 + 1 / (1000 * 5 * std**2), 6)
        0.002
    """
    return 1 / math.sqrt(decay * (copies - 1) * num_data)


def _classification(name: str) -> Recipe:
    kind, task = name.split("-", 1)
    words, epochs, num_data, where = TASKS[task]
    method = Patching(
        members=COPIES,
        scope="element" if kind == "ecmp" else "layer",
        where=where,
        prior_std=prior_std(DECAY, COPIES, num_data),
        preset="paper",
    )
    config = FitConfig(
        epochs=epochs,
        batch_size=256,
        optimizer="Adam",
        lr=1e-3,
        weight_decay=DECAY,
        schedule="constant",
        evaluate_samples=200,
    )
    notes = f"{kind.upper()} from scratch: {words}, {COPIES} copies"
    return Recipe(name=name, method=method, config=config, paper=PAPER, notes=notes)


def _regression(name: str) -> Recipe:
    kind = name.split("-")[0]
    method = Patching(
        members=COPIES,
        scope="element" if kind == "ecmp" else "layer",
        where="norm",
        preset="paper",
    )
    config = FitConfig(
        epochs=4000,
        batch_size=100,
        optimizer="Adam",
        lr=1e-3,
        weight_decay=SQUARES_DECAY * PRECISION / 2,
        schedule="constant",
        kl_weight=0.0,
        evaluate_samples=10_000,
    )
    notes = (
        f"{kind.upper()} from scratch: a hidden layer of 50 on small regressions, {COPIES} copies\n"
        "Norms before and after the hidden layer that start at 0.2; inputs standardised; "
        "lb.Gaussian(precision=0.1) in raw target units."
    )
    return Recipe(name=name, method=method, config=config, paper=PAPER, notes=notes)


RECIPES: Recipes = {
    **{f"{kind}-{task}": _classification for kind in ("emp", "ecmp") for task in TASKS},
    **{f"{kind}-regression": _regression for kind in ("emp", "ecmp")},
}
