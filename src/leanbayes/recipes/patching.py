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
  0.1, 10,000 draws: P, appendix D.7. That decay, by the batch as above, stands beside the squared
  error (appendix C.1); the Gaussian's `precision / 2` times the squared error takes as much of it,
  or 1e-5. The size of the data differs, so that copies have the Kth part of the decay there and no
  prior. Outputs in standard units: I.
- Copies start at N(1, 0.1^2) of the layer's own values: I; the paper says 'randomly'.
- MC dropout with 0.005 before every norm: P, appendix D.3. Here after every convolution, which is
  the same in ResNet-18; the first norm of PyramidNet's blocks follows a sum, and has no mask. Masks
  of the inputs of the regressions are left out.
- Regressions by an ensemble of five: P, table 12.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from leanbayes import select
from leanbayes.methods.base import Method
from leanbayes.methods.deep_ensemble import DeepEnsemble
from leanbayes.methods.map import MAP
from leanbayes.methods.mc_dropout import MCDropout
from leanbayes.methods.patching import Patching
from leanbayes.recipes import parts
from leanbayes.recipes.recipe import Part, Recipe, Recipes
from leanbayes.train.config import FitConfig

PAPER = "Chen and Shyu 2019, ensemble model patching"
COPIES = 5
DECAY = 2 * 0.001 / 256
SQUARES_DECAY, PRECISION = 2 * 0.01 / 100, 0.1  # of the regressions
Where = Literal["norm", "norm+output"]
DROPOUT = 0.005
NOISE = {"name": "gaussian", "options": {"precision": 0.1, "target_mean": 0.0, "target_std": 1.0}}


class _Task(NamedTuple):
    """A table of the paper."""

    words: str
    epochs: int
    num_data: int
    where: Where
    network: Part
    data: Part
    augment: str | None = None


_IMAGES = (parts.RESNET18, parts.IMAGENET)
TASKS: dict[str, _Task] = {
    "imagenet": _Task("ResNet-18 on ImageNet", 100, 1_281_167, "norm+output", *_IMAGES),
    "imagenet-norm": _Task("ResNet-18 on ImageNet, norms alone", 100, 1_281_167, "norm", *_IMAGES),
    "cifar100": _Task(
        *("PyramidNet-110-270 on CIFAR-100", 400, 50_000, "norm+output"),
        *(parts.PYRAMIDNET, parts.CIFAR100, "crop+flip"),
    ),
}


def prior_std(decay: float, copies: int, num_data: int) -> float:
    """The prior that makes the decay of a copy whole, beside the Kth part of its group.

    Example:
        >>> std = prior_std(0.002, copies=5, num_data=1000)
        >>> round(0.002 / 5 + 1 / (1000 * 5 * std**2), 6)
        0.002
    """
    return 1 / math.sqrt(decay * (copies - 1) * num_data)


def _config(epochs: int) -> FitConfig:
    return FitConfig(
        epochs=epochs,
        batch_size=256,
        optimizer="Adam",
        lr=1e-3,
        weight_decay=DECAY,
        schedule="constant",
        evaluate_samples=200,
    )


def _classification(name: str) -> Recipe:
    kind, key = name.split("-", 1)
    task = TASKS[key]
    method = Patching(
        members=COPIES,
        scope="element" if kind == "ecmp" else "layer",
        where=task.where,
        prior_std=prior_std(DECAY, COPIES, task.num_data),
        preset="paper",
    )
    notes = f"{kind.upper()} from scratch: {task.words}, {COPIES} copies"
    return _on_images(name, method, task, notes)


def _baseline(name: str) -> Recipe:
    _, key, row = name.split("-")
    method = MAP() if row == "map" else _dropout(select.convs)
    words = "point estimate" if row == "map" else f"MC dropout of {DROPOUT}"
    return _on_images(
        name, method, TASKS[key], f"EMP's baseline, {words} from scratch: {TASKS[key].words}"
    )


def _dropout(where: select.Selector) -> Method:
    return MCDropout(rate=DROPOUT, where=where, position="after")


def _on_images(name: str, method: Method, task: _Task, notes: str) -> Recipe:
    return Recipe(
        name=name,
        method=method,
        config=_config(task.epochs),
        network=task.network,
        data=task.data,
        paper=PAPER,
        notes=notes,
        augment=task.augment,
    )


def _regression(name: str) -> Recipe:
    kind, row = name.split("-")[0], name.partition("regression-")[2]
    words = {"dropout": f"MC dropout of {DROPOUT}", "ensemble": f"ensemble of {COPIES}"}
    head = f"EMP's baseline, {words[row]}" if row else kind.upper()
    copies = "" if row else f", {COPIES} copies"
    return Recipe(
        name=name,
        method=_regression_method(kind, row),
        config=_regression_config(row),
        network=parts.HIDDEN_50,
        data=parts.BOSTON,
        paper=PAPER,
        notes=f"{head} from scratch: a hidden layer of 50 on small regressions{copies}\n"
        "Norms before and after the hidden layer that start at 0.2; inputs standardised; "
        "lb.Gaussian(precision=0.1) in raw target units. The network has as many inputs as the "
        "Boston data: for others set model.options.inputs. `leanbayes experiment uci` is the "
        "table.",
        likelihood=NOISE,
    )


def _regression_method(kind: str, row: str) -> Method:
    if row == "dropout":
        return _dropout(select.by_name("hidden.*"))
    if row == "ensemble":
        return DeepEnsemble(members=COPIES)
    scope: Literal["element", "layer"] = "element" if kind == "ecmp" else "layer"
    return Patching(members=COPIES, scope=scope, where="norm", preset="paper")


def _regression_config(row: str) -> FitConfig:
    return FitConfig(
        epochs=4000,
        batch_size=100,
        optimizer="Adam",
        lr=1e-3,
        weight_decay=SQUARES_DECAY * PRECISION / 2,
        schedule="constant",
        kl_weight=0.0,
        evaluate_samples=COPIES if row == "ensemble" else 10_000,
    )


RECIPES: Recipes = {
    **{f"{kind}-{task}": _classification for kind in ("emp", "ecmp") for task in TASKS},
    **{f"{kind}-regression": _regression for kind in ("emp", "ecmp")},
    **{
        f"emp-{task}-{row}": _baseline
        for task in ("imagenet", "cifar100")
        for row in ("map", "dropout")
    },
    **{f"emp-regression-{row}": _regression for row in ("dropout", "ensemble")},
}
