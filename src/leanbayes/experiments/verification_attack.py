"""Adversarial images for the verification experiment: `lb.attacks.pgd` under its budget."""

from __future__ import annotations

from typing import Final

from torch import Tensor

from leanbayes import attacks
from leanbayes.experiments.open_set_data import Budget, OpenSetData
from leanbayes.likelihood import Categorical
from leanbayes.model import BayesianModel

STEP: Final = 0.003  # of the paper, for CIFAR-10


def pgd(model: BayesianModel, data: OpenSetData, budget: Budget) -> Tensor:
    """Test images, changed within the budget so that their true class becomes unlikely."""
    x, y = (part[: budget.most] for part in data.test)
    return attacks.pgd(
        model,
        x,
        y,
        eps=budget.eps,
        step_size=STEP,
        steps=budget.steps,
        samples=budget.samples,
        seed=budget.seed,
        likelihood=Categorical(),
        normalize=data.normalize,
    )
