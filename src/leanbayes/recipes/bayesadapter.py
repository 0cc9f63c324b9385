"""BayesAdapter (Deng et al. 2022): Bayesian fine-tuning of a trained network.

Where the numbers come from (P: the paper, C: the authors' public code, I: inferred).

- Epochs 12, 4, 4 and weight decays 2e-4, 1e-4, 5e-4: P, sections 4.1 to 4.3; the decay is a prior
  N(0, 1 / (decay * num_data)) of variance 0.1, 0.0078, 0.0041: P, appendix B.
- Batch 256; rates 1e-4 constant for trained parameters, 1e-3 down to 1e-4 by cosine for new ones;
  SGD 0.9 with Nesterov on CIFAR-10 alone; no weight decay by the optimiser where a prior acts: C.
- One draw a row, dropout off, log-scales from U(-6, -5): C. 20 candidates of rank 1: P, section 4,
  that start at 1 +- 0.2 on CIFAR-10 and 1 +- 0.1 elsewhere: C. Ranks 8 and 16: P, table 5.
- Regularisation with alpha 3 and gamma 0.75: P, section 4 and appendix B. The MI of two draws is at
  most ln 2 = 0.693, so that this gamma is the same objective as none, which is what stands here;
  0.25 and 0.5 (P, table 6) are others. Half of the rows clean, a quarter OOD with two draws each:
  C.
"""

from __future__ import annotations

from leanbayes.methods.base import Method
from leanbayes.methods.mean_field import MeanField
from leanbayes.methods.shared_ensemble import SharedEnsemble
from leanbayes.recipes.bayesadapter_tasks import PAPER, TASKS, Task
from leanbayes.recipes.recipe import Recipe, Recipes
from leanbayes.regularizer import OODRegularizer
from leanbayes.train.config import FitConfig

BATCH = 256
RANK, GAMMA = "rank", "gamma"


def mean_field(task: Task) -> Method:
    """Every parameter of every layer, norms and biases included; one draw a row."""
    return MeanField(
        estimator="exemplar", weight_decay=task.decay, num_data=task.num_data, preset="paper"
    )


def shared_ensemble(task: Task, rank: int = 1) -> Method:
    """Twenty candidates for linear and convolution layers."""
    return SharedEnsemble(
        members=20,
        rank=rank,
        init_std=task.spread,
        weight_decay=task.decay,
        num_data=task.num_data,
        preset="paper",
    )


def _config(task: Task, regularised: bool, gamma: float | None) -> FitConfig:
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
        regularizer=OODRegularizer(alpha=3.0, gamma=gamma) if regularised else None,
    )


def _number(kinds: list[str], word: str) -> float | None:
    return next((float(kind.removeprefix(word)) for kind in kinds if kind.startswith(word)), None)


def _build(name: str) -> Recipe:
    data, *kinds = name.split("-")[1:]
    task, shared, regularised = TASKS[data], "pse" in kinds, "reg" in kinds
    rank, gamma = int(_number(kinds, RANK) or 1), _number(kinds, GAMMA)
    words = "parameter-sharing ensemble of 20" if shared else "mean-field Gaussian"
    words += f" of rank {rank}" if rank > 1 else ""
    notes = [
        f"BayesAdapter, {words}, from a trained network: {task.words}"
        + (", unsure where the data are not" if regularised else "")
        + (f", gamma {gamma:g}" if gamma else ""),
        f"Bring a network trained with a weight decay of {task.decay:g}, and its augmentation.",
        "The authors train in mixed precision: precision='bf16' does so.",
    ]
    if regularised:
        notes.append(f"Bring OOD data too, in batches of {BATCH // 4}.")
    return Recipe(
        name=name,
        method=shared_ensemble(task, rank) if shared else mean_field(task),
        config=_config(task, regularised, gamma),
        network=task.network,
        data=task.data,
        paper=PAPER,
        notes="\n".join(notes),
        trained=True,
        augment=task.augment,
    )


RECIPES: Recipes = {
    **{
        f"bayesadapter-{data}{kind}": _build
        for data in TASKS
        for kind in ("", "-pse", "-reg", "-pse-reg")
    },
    **{f"bayesadapter-imagenet-pse-{RANK}{rank}": _build for rank in (8, 16)},
    **{f"bayesadapter-cifar10-reg-{GAMMA}{gamma}": _build for gamma in (0.25, 0.5)},
}
