"""The other rows of the Rank-1 paper's tables on CIFAR and ImageNet.

Where the numbers come from (P: the paper, C: the authors' public code, I: inferred).

- BatchEnsemble: four members, factors from N(1, 0.5^2), their rate half of the network's: C; the
  training of the Rank-1 networks: C. On ImageNet the same rate for both: I.
- Point estimate: 200 epochs with a fifth at epochs 80, 160 and 180 (CIFAR; what Rank-1 stretches to
  250): C; 90 epochs with a tenth at epochs 30, 60 and 80 (ImageNet): I. Decay 2e-4: I.
- MC dropout at 0.1 before every convolution: I; the paper prints it with one draw. MFVI by Flipout
  under the training of the point estimate, prior N(0, 0.1^2): I.
- Four networks as an ensemble, WRN-28-10 or WRN-28-5: P, table 2; each with the epochs of one.
"""

from __future__ import annotations

from dataclasses import replace

from leanbayes import select
from leanbayes.methods.base import Method
from leanbayes.methods.batch_ensemble import BatchEnsemble
from leanbayes.methods.deep_ensemble import DeepEnsemble
from leanbayes.methods.map import MAP
from leanbayes.methods.mc_dropout import MCDropout
from leanbayes.methods.mean_field import MeanField
from leanbayes.recipes import parts
from leanbayes.recipes.rank1 import PAPER, TASKS, Task, training
from leanbayes.recipes.recipe import Recipe, Recipes
from leanbayes.train.config import FitConfig

MEMBERS = 4
WORDS = {
    "map": "point estimate",
    "batch-ensemble": f"BatchEnsemble of {MEMBERS}",
    "dropout": "MC dropout",
    "vi": "mean-field VI by Flipout",
    "ensemble": f"deep ensemble of {MEMBERS}",
    "ensemble-28-5": f"deep ensemble of {MEMBERS}",
}
ROWS = {
    "cifar10": tuple(WORDS),
    "cifar100": tuple(WORDS),
    "imagenet": ("map", "batch-ensemble", "ensemble"),
}


def _single(data: str) -> FitConfig:
    """The training of one network."""
    epochs, marks = (90, (30, 60, 80)) if data == "imagenet" else (200, (80, 160, 180))
    fractions = tuple(mark / epochs for mark in marks)
    return replace(training(TASKS[data]), epochs=epochs, milestones=fractions, kl_warmup=0.0)


def _settings(data: str, row: str) -> tuple[Method, FitConfig]:
    task, single = TASKS[data], _single(data)
    match row:
        case "map":
            return MAP(), single
        case "batch-ensemble":
            return BatchEnsemble(members=MEMBERS, init_std=0.5, assign="tile"), _members(data, task)
        case "dropout":
            return MCDropout(rate=0.1, where=select.convs), replace(single, evaluate_samples=1)
        case "vi":
            method = MeanField(estimator="flipout", prior_std=task.prior_std)
            return method, replace(single, weight_decay=0.0, kl_warmup=1.0)
        case _:
            assert single.epochs is not None
            turns = replace(single, epochs=MEMBERS * single.epochs, warmup=MEMBERS * single.warmup)
            return DeepEnsemble(members=MEMBERS, assign="turns"), turns


def _members(data: str, task: Task) -> FitConfig:
    rate = task.lr if data == "imagenet" else task.lr / 2
    return replace(training(task), posterior_lr=rate, kl_warmup=0.0)


def _build(name: str) -> Recipe:
    _, data, row = name.split("-", 2)
    task = TASKS[data]
    method, config = _settings(data, row)
    narrow = row == "ensemble-28-5"
    words = task.words.replace("28-10", "28-5") if narrow else task.words
    return Recipe(
        name=name,
        method=method,
        config=config,
        network=parts.WRN_28_5 if narrow else task.network,
        data=task.data,
        paper=PAPER,
        notes=f"Rank-1's baseline, {WORDS[row]}, from scratch: {words}",
    )


RECIPES: Recipes = {f"rank1-{data}-{row}": _build for data in ROWS for row in ROWS[data]}
