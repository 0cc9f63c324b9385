"""How the networks of the verification experiment are trained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from leanbayes.experiments.experiment import Row
from leanbayes.methods import MAP, MCDropout, Method
from leanbayes.recipes import Recipe, recipe
from leanbayes.train.config import FitConfig

if TYPE_CHECKING:
    from leanbayes.experiments.verification import OpenSet

# The recipe of each method; points and dropout are trained as the network of the first one.
METHODS: Final[Mapping[str, str]] = {
    "map": "bayesadapter-cifar10",
    "mc_dropout": "bayesadapter-cifar10",
    "mean_field": "bayesadapter-cifar10",
    "shared_ensemble": "bayesadapter-cifar10-pse",
    "mc_dropout_reg": "bayesadapter-cifar10-reg",
    "mean_field_reg": "bayesadapter-cifar10-reg",
    "shared_ensemble_reg": "bayesadapter-cifar10-pse-reg",
}
# Of the paper, on faces: accuracy on LFW (Table 3), AP of adversarial images of LFW (Table 7).
PAPER: Final[Mapping[str, tuple[float, float]]] = {
    "map": (0.982, 0.191),
    "mc_dropout": (0.982, 0.965),
    "mean_field": (0.984, 0.232),
    "shared_ensemble": (0.984, 0.939),
    "mean_field_reg": (0.984, 0.998),
    "shared_ensemble_reg": (0.980, 1.000),
}


def pretraining(chosen: OpenSet) -> FitConfig:
    """How the network is trained from scratch."""
    return FitConfig(
        epochs=None if chosen.smoke else chosen.pretrain_epochs,
        steps=3 if chosen.smoke else None,
        batch_size=chosen.batch_size,
        lr=0.1,
        weight_decay=chosen.weight_decay,
        **_shared(chosen),
    )


def setting(chosen: OpenSet, name: str, num_data: int) -> tuple[Method, FitConfig]:
    """A method and its training: the recipe, with the prior of these data and the one budget."""
    base = recipe(METHODS[name])
    method = _method(chosen, name, base, num_data)
    steps = 2 if chosen.smoke else math.ceil(chosen.epochs * num_data / chosen.batch_size)
    clean = chosen.batch_size if base.config.regularizer is None else chosen.batch_size // 2
    config = replace(
        base.config,
        epochs=None,
        steps=steps,
        batch_size=clean,
        lr=chosen.lr,
        posterior_lr=chosen.log_std_lr if method.name == "mean_field" else chosen.posterior_lr,
        schedule="cosine",
        weight_decay=chosen.weight_decay,
        **_shared(chosen),
    )
    return method, config


def _method(chosen: OpenSet, name: str, base: Recipe, num_data: int) -> Method:
    if name == "map":
        return MAP()
    if name.startswith("mc_dropout"):
        return MCDropout(rate=0.2)
    changes: dict[str, Any] = {"weight_decay": chosen.weight_decay, "num_data": num_data}
    if base.method.name == "mean_field":
        changes |= {"estimator": chosen.estimator, "init_log_std": chosen.log_std}
    elif chosen.smoke:
        changes["members"] = 4
    return replace(base.method, **changes)


def _shared(chosen: OpenSet) -> dict[str, Any]:
    return {
        "seed": chosen.seed,
        "device": chosen.device,
        "precision": chosen.precision,
        "progress": False,
        "log_every": 10_000,
    }


def paper_figures(name: str) -> Row | None:
    """The paper's figures on faces, for the order of the methods alone; None where it has none."""
    if name not in PAPER:
        return None
    accuracy, precision = PAPER[name]
    return {"lfw_accuracy": accuracy, "lfw_ap_adversarial": precision, "comparable": False}
