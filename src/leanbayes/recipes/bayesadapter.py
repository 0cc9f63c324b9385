"""BayesAdapter (Deng et al. 2022): Bayesian fine-tuning of a trained network.

Where the numbers come from (P: the paper, C: the authors' public code, I: inferred).

- Epochs 12, 4, 4 and weight decays 2e-4, 1e-4, 5e-4: P, sections 4.1 to 4.3; the decay is a prior
  N(0, 1 / (decay * num_data)) of variance 0.1, 0.0078, 0.0041: P, appendix B.
- Batch 256; rates 1e-4 constant for trained parameters, 1e-3 down to 1e-4 by cosine for new ones;
  SGD 0.9 with Nesterov on CIFAR-10 alone; no weight decay by the optimiser where a prior acts: C.
- One draw a row, dropout off, log-scales from U(-6, -5): C. 20 candidates of rank 1: P, section 4,
  that start at 1 +- 0.2 on CIFAR-10 and 1 +- 0.1 elsewhere: C.
- Regularisation with alpha 3 and gamma 0.75: P, section 4 and appendix B. The MI of two draws is at
  most ln 2 = 0.693, so that this gamma is the same objective as none, which is what stands here.
  Half of the rows clean, a quarter OOD with two draws each: C.
"""

from __future__ import annotations

from dataclasses import dataclass

from leanbayes.methods.base import Method
from leanbayes.methods.mean_field import MeanField
from leanbayes.methods.shared_ensemble import SharedEnsemble
from leanbayes.recipes.recipe import Recipe, Recipes
from leanbayes.regularizer import OODRegularizer
from leanbayes.train.config import FitConfig

PAPER = "Deng et al. 2022, BayesAdapter"
BATCH = 256


@dataclass(frozen=True)
class _Task:
    """What differs between the paper's data sets."""

    words: str
    epochs: int
    decay: float
    num_data: int
    spread: float
    nesterov: bool = False


TASKS = {
    "cifar10": _Task("WRN-28-10 on CIFAR-10", 12, 2e-4, 50_000, 0.2, nesterov=True),
    "imagenet": _Task("ResNet-50 on ImageNet", 4, 1e-4, 1_281_167, 0.1),
    "casia": _Task("MobileNetV2 on CASIA faces", 4, 5e-4, 490_623, 0.1),
}


def _mean_field(task: _Task) -> Method:
    """Every parameter of every layer, norms and biases included; one draw a row."""
    return MeanField(
        estimator="exemplar", weight_decay=task.decay, num_data=task.num_data, preset="paper"
    )


def _shared_ensemble(task: _Task) -> Method:
    """Twenty candidates of rank 1 for linear and convolution layers."""
    return SharedEnsemble(
        members=20,
        rank=1,
        init_std=task.spread,
        weight_decay=task.decay,
        num_data=task.num_data,
        preset="paper",
    )


def _config(task: _Task, regularised: bool) -> FitConfig:
    """The weight decay reaches what no prior acts on: with candidates, biases and norms."""
    return FitConfig(
        epochs=task.epochs,
        batch_size=BATCH // 2 if regularised else BATCH,
        lr=1e-4,
        posterior_lr=1e-3,
        schedule="constant",
        posterior_schedule="cosine",
        floor=0.1,
        momentum=0.9,
        nesterov=task.nesterov,
        weight_decay=task.decay,
        regularizer=OODRegularizer(alpha=3.0, gamma=None) if regularised else None,
    )


def _build(name: str) -> Recipe:
    data, *kinds = name.split("-")[1:]
    task, shared, regularised = TASKS[data], "pse" in kinds, "reg" in kinds
    words = "parameter-sharing ensemble of 20" if shared else "mean-field Gaussian"
    notes = [
        f"BayesAdapter, {words}, from a trained network: {task.words}"
        + (", unsure where the data are not" if regularised else ""),
        f"Bring a network trained with a weight decay of {task.decay:g}, and its augmentation.",
        "The authors train in mixed precision: precision='bf16' does so.",
    ]
    if regularised:
        notes.append(f"Bring OOD data too, in batches of {BATCH // 4}.")
    method = _shared_ensemble(task) if shared else _mean_field(task)
    config = _config(task, regularised)
    return Recipe(name=name, method=method, config=config, paper=PAPER, notes="\n".join(notes))


RECIPES: Recipes = {
    f"bayesadapter-{data}{kind}": _build
    for data in TASKS
    for kind in ("", "-pse", "-reg", "-pse-reg")
}
