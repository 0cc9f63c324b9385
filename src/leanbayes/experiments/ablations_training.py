"""How the networks of the ablations are trained: the table `cifar10-wrn`, for fewer epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from leanbayes import select
from leanbayes.methods import Method
from leanbayes.methods.base import method_named
from leanbayes.recipes.tables import table
from leanbayes.regularizer import OODRegularizer
from leanbayes.train.config import FitConfig

if TYPE_CHECKING:
    from leanbayes.experiments.ablations import Ablations

TABLE: Final = table("cifar10-wrn")
CEILING: Final = math.log(2)  # of the mutual information of two draws


def method_of(label: str, num_data: int, **changes: Any) -> Method:
    """The method of a row of the table, its prior for so many training images.

    Args:
        label: Of the row.
        num_data: Training images.
        **changes: Fields in place of the row's.
    """
    row: Mapping[str, Any] = TABLE["methods"][label]
    fields = {**row.get("fields", {}), **changes}
    if "num_data" in fields:
        fields["num_data"] = num_data
    if isinstance(fields.get("where"), Mapping):
        fields["where"] = select.by_name(*fields["where"]["name"])
    return method_named(row["name"])(**fields)


def ensemble(plan: Ablations, **changes: Any) -> dict[str, Any]:
    """Fields of shared_ensemble in place of the table's."""
    return {"members": plan.ensemble, "per_channel": plan.per_channel, **changes}


def tuning(plan: Ablations, label: str, **changes: Any) -> FitConfig:
    """The fine-tuning of a row of the table.

    Args:
        plan: The settings.
        label: Of the row.
        **changes: Of the training, in place of the row's.
    """
    rates = {**TABLE["fit"], **TABLE["methods"][label].get("fit", {})}
    own = {"epochs": plan.tune_epochs, "batch_size": plan.batch_size}
    return FitConfig(**{**rates, **own, **_shared(plan), **changes})


def pretraining(plan: Ablations, **changes: Any) -> FitConfig:
    """The training of the start, and from scratch."""
    config = FitConfig(
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        lr=plan.lr,
        schedule="cosine",
        weight_decay=TABLE["fit"]["weight_decay"],
        **_shared(plan),
    )
    return replace(config, **changes)


def regularised(plan: Ablations, gamma: float | None, num_data: int) -> FitConfig:
    """Fine-tuning with the regulariser in as many steps of as many rows as without.

    Half of the rows are clean, a quarter are noisy images with two draws each; gamma 0 is a penalty
    of 0, so that all rows are clean ones. A margin of ln 2 or more never binds: it is none.
    """
    steps = plan.tune_epochs * -(-num_data // plan.batch_size)
    config = tuning(
        plan,
        "mean_field",
        lr=plan.reg_lr,
        posterior_lr=plan.reg_posterior_lr,
        schedule="cosine",
        floor=0.0,
        epochs=None,
        steps=steps,
    )
    if gamma == 0:
        return config
    binding = gamma if gamma is not None and gamma < CEILING else None
    penalty = OODRegularizer(alpha=3.0, gamma=binding)
    return replace(config, batch_size=plan.batch_size // 2, regularizer=penalty)


def _shared(plan: Ablations) -> dict[str, Any]:
    there = torch.device(plan.device).type == "cuda"
    return {
        "precision": plan.precision if there else "fp32",
        "channels_last": there,
        "resident": there,
        "seed": plan.seed,
        "device": plan.device,
        "progress": False,
        "log_every": 10_000,
    }
