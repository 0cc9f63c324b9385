"""All methods side by side: WRN-28-10 on CIFAR-10, for `leanbayes compare --table cifar10-wrn`.

One start, trained once a seed; every fine-tuned row begins there and has 12 epochs. Rows stand in
the order of their worth, and a run takes the first seed of all of them before the second.

Where the numbers come from (P: a paper, C: its authors' code, I: inferred), and what is different
here on purpose. The same for all:

- Start: 60 epochs of SGD, rate 0.1 by cosine, batch 256, decay 5e-4 (papers: 200 epochs in steps,
  BayesAdapter; 300, iBNN; 250, Rank-1; decays 2e-4 to 5e-4). Crop and flip, no cutout. bf16.
- Fine-tuning: 12 epochs, batch 256: P, BayesAdapter. Its rates, 1e-4 constant for what was trained
  and 1e-3 down to 1e-4 for what is new: C; they are those of rows that say nothing else.
- The decay as a prior is the start's: variance 1 / (5e-4 * 50,000) = 0.04.
- One draw an example and step. Predictions by the methods' own number of draws.
"""

from __future__ import annotations

from typing import Any, Final

from leanbayes.recipes.cifar10_wrn_later import LATER

DECAY, NUM_DATA, EPS = 5e-4, 50_000, 0.031
PRIOR: Final = {"weight_decay": DECAY, "num_data": NUM_DATA}
Row = dict[str, Any]


def _row(name: str, seeds: int = 1, **more: Any) -> Row:
    """A row by its method; with one seed unless it is one of the main ones."""
    found = {"name": name, **more}
    return found if seeds == MAIN else {**found, "seeds": seeds}


def _compose(*parts: Row) -> Row:
    return {"parts": list(parts)}


MAIN = 3  # seeds of the main rows
# Rates of a fine-tuning in which all parameters move: I. Papers that train from scratch name none.
MOVING: Final = {"lr": 1e-3, "posterior_lr": 1e-3, "schedule": "cosine", "floor": 0.0}
# Factors of channels have gradients summed over rows and pixels, and a share of the rows: iBNN's
# 0.2 for a trained network (P) is of this size. Half of it for two factors a layer: I.
FACTORS: Final = {"lr": 1e-4, "posterior_lr": 0.1}
# iBNN, appendix (P): 0.2 down to 0.05 between epochs 6 and 10 of 15. One draw a step, not two.
NODES: Final = {
    "lr": 1e-4,
    "posterior_lr": 0.2,
    "posterior_schedule": "linear",
    "span": [0.4, 0.6667],
    "floor": 0.25,
}
# BayesAdapter (C): half of the rows of a step are clean, a quarter are OOD with two draws each.
# Noisy images alone (theirs: generated ones too). Its margin of 0.75 nats is above what two draws
# can reach, so that there is none.
UNSURE: Final = {
    "batch_size": 128,
    "ood_batch_size": 64,
    "regularizer": {"alpha": 3.0, "gamma": None},
}
NOISE: Final = {"eps": EPS}
DROPPED: Final = {"name": ["stage*.conv2"]}  # before the second convolution of a block: P

MEAN_FIELD: Final = {"estimator": "flipout", **PRIOR}
SHARED: Final = {"members": 20, "init_std": 0.2, **PRIOR}  # 0.2 on CIFAR-10: C
RANK_ONE: Final = {"members": 4, "prior_std": 0.1}  # P; from a trained network: I

FIRST: Final[dict[str, Row]] = {
    "map": _row("map", MAIN, fit={"epochs": 0}),
    "mean_field": _row("mean_field", MAIN, fields=MEAN_FIELD),
    "shared_ensemble": _row("shared_ensemble", MAIN, fields=SHARED),
    "rank_one": _row("rank_one", MAIN, fields=RANK_ONE, fit=FACTORS),
    "implicit_4": _row("implicit", MAIN, fields={"members": 4, "prior_std": 0.1}, fit=NODES),
    "emp": _row("patching", MAIN, fields={"members": 5}, fit=MOVING),
    "ecmp": _row("patching", MAIN, fields={"members": 5, "cross": True}, fit=MOVING),
    "partial_1": _row("partial", MAIN, fields={"rate": 0.01}, fit=MOVING),
    "batch_ensemble": _row("batch_ensemble", fields={"members": 4}, fit=FACTORS),
    # The control: the same 12 epochs of the point alone.
    "map_longer": _row("map"),
    # The papers train with it from scratch at 0.3 (below); fine-tuned at a lower rate: I.
    "mc_dropout": _row(
        "mc_dropout",
        fields={"rate": 0.1, "where": DROPPED},
        fit={"lr": 1e-2, "schedule": "cosine", "floor": 0.0},
    ),
    # 60 iterates at a constant rate in the 12 epochs of the others: I; 20 deviations: P.
    "swag": _row(
        "swag",
        fit={"epochs": 0},
        fitting={"lr": 0.01, "epochs": 12, "collect_every": 39, "weight_decay": DECAY},
    ),
    # All layers with the decay's prior (0.2) lose their accuracy; 0.05 does not: I.
    "laplace": _row(
        "laplace", fields={"prior_std": 0.05}, fit={"epochs": 0}, fitting={"probes": 2}
    ),
    "laplace_last": _row(
        "laplace",
        fields={"structure": "kronecker"},
        fit={"epochs": 0},
        fitting={"prior": "fit"},
    ),
    "mean_field_reg": _row("mean_field", fields=MEAN_FIELD, fit=UNSURE, ood=NOISE),
    "shared_ensemble_reg": _row("shared_ensemble", fields=SHARED, fit=UNSURE, ood=NOISE),
    "implicit_8": _row("implicit", fields={"members": 8, "prior_std": 0.1}, fit=NODES),
    "implicit_16": _row("implicit", fields={"members": 16, "prior_std": 0.1}, fit=NODES),
    "norms_rank_one": _row(
        "compose",
        fields=_compose(
            {"select": "norms", "name": "patching", "fields": {"members": 5, "where": "norm"}},
            {"select": "convs+linears", "name": "rank_one", "fields": RANK_ONE},
        ),
        fit=FACTORS,
    ),
    "shared_ensemble_head": _row(
        "compose",
        fields=_compose(
            {"select": "convs", "name": "shared_ensemble", "fields": SHARED},
            {"select": "output", "name": "mean_field", "fields": PRIOR},
        ),
    ),
    "rank_one_cauchy": _row("rank_one", fields={**RANK_ONE, "law": "cauchy"}, fit=FACTORS),
    "emp_norm": _row("patching", fields={"members": 5, "where": "norm"}, fit=MOVING),
    "ecmp_norm": _row(
        "patching", fields={"members": 5, "where": "norm", "cross": True}, fit=MOVING
    ),
    "partial_1_loss": _row("partial", fields={"rate": 0.01, "criterion": "loss_grad"}, fit=MOVING),
    "partial_5": _row("partial", fields={"rate": 0.05}, fit=MOVING),
    "partial_5_loss": _row("partial", fields={"rate": 0.05, "criterion": "loss_grad"}, fit=MOVING),
    "partial_10": _row("partial", fields={"rate": 0.1}, fit=MOVING),
    "partial_10_loss": _row("partial", fields={"rate": 0.1, "criterion": "loss_grad"}, fit=MOVING),
    "partial_01": _row("partial", fields={"rate": 0.001}, fit=MOVING),
    "partial_01_loss": _row(
        "partial", fields={"rate": 0.001, "criterion": "loss_grad"}, fit=MOVING
    ),
    "mean_field_shared": _row("mean_field", fields={**MEAN_FIELD, "estimator": "shared"}),
    "mean_field_exemplar": _row(
        "mean_field", fields={**MEAN_FIELD, "estimator": "exemplar", "groups": 16}
    ),
    "shared_ensemble_8": _row("shared_ensemble", fields={**SHARED, "rank": 8}),
    "shared_ensemble_8_reg": _row(
        "shared_ensemble", fields={**SHARED, "rank": 8}, fit=UNSURE, ood=NOISE
    ),
    # The members are the starts of seeds 0 to 4: what they were trained for anyway.
    "deep_ensemble": {
        **_row("deep_ensemble", fields={"members": 5}, fit={"epochs": 0}),
        "from": "starts",
    },
    # The rival of equal parameters: four networks of half the width.
    "deep_ensemble_narrow": _row(
        "deep_ensemble", fields={"members": 4}, model={"options": {"width": 5}}
    ),
}

TABLE: Final[dict[str, Any]] = {
    "model": {"name": "wide_resnet", "options": {"depth": 28, "width": 10}},
    "data": {"augment": "crop+flip", "options": {"validation": 0}},
    "fit": {
        "epochs": 12,
        "batch_size": 256,
        "lr": 1e-4,
        "posterior_lr": 1e-3,
        "schedule": "constant",
        "posterior_schedule": "cosine",
        "floor": 0.1,
        "optimizer": "SGD",
        "momentum": 0.9,
        "nesterov": True,
        "weight_decay": DECAY,
        "precision": "bf16",
        "channels_last": True,
        "resident": True,
    },
    "start": {
        "fit": {
            "epochs": 60,
            "lr": 0.1,
            "posterior_lr": 0.1,
            "schedule": "cosine",
            "floor": 0.0,
            "save_every": 2000,  # ten epochs: a checkpoint holds 300 MB
        }
    },
    "suite": {
        "splits": "test,ood:tiny,pgd,corrupted",
        "rows": {"corrupted": 2000, "pgd": 1000},
        "samples": {"corrupted": 5},
        "attack": {"samples": 5},  # BayesAdapter takes 20 at every step: C
        "sweep": True,
        "examples": True,
        "precision": "bf16",
        "batch_size": 500,
        "ood": {"tiny": {"name": "npz"}},
    },
    "methods": {**FIRST, **LATER},
}

# The whole table in minutes on a CPU: a small network of the same kind, one corruption, two steps
# of an attack. For the embedded images.
SMALL: Final[dict[str, Any]] = {
    "model": {"name": "wide_resnet", "options": {"depth": 10, "width": 1, "channels": 1}},
    "data": {"augment": "crop+flip", "options": {"held_out": 0}},
    "fit": {"precision": "fp32"},
    "suite": {
        "splits": "test,ood:tiny,pgd,corrupted:fog/3",
        "rows": {"corrupted": 16, "pgd": 8},
        "attack": {"samples": 1, "steps": 2},
        "precision": "fp32",
        "batch_size": 64,
        "ood": {"tiny": {"name": "digits"}},
    },
    "methods": {
        "deep_ensemble_narrow": {"model": {"options": {"width": 1}}},
        "swag": {"fitting": {"epochs": 5, "collect_every": 1}},
        **{
            label: {"model": {"name": "lenet", "options": {}}}
            for label in LATER
            if label.startswith("vgg_")
        },
        "vgg_mc_dropout": {
            "model": {"name": "lenet", "options": {}},  # it has no dropout of its own
            "fields": {"where": "output"},
        },
    },
}
