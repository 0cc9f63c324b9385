"""How the networks of the experiment on adversarial inputs are trained, and what is tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from leanbayes.methods import MAP, MCDropout, MeanField, Method, SharedEnsemble
from leanbayes.regularizer import OODRegularizer
from leanbayes.train.config import FitConfig

if TYPE_CHECKING:
    from leanbayes.experiments.adversarial_ood import AdversarialOOD

REGULARISED: Final = "_reg"
DROPOUT: Final = 0.2  # of the paper's baseline


def _mean_field(chosen: AdversarialOOD, prior: dict[str, Any]) -> Method:
    return MeanField(init_log_std=chosen.log_std, **prior)


def _shared_ensemble(chosen: AdversarialOOD, prior: dict[str, Any]) -> Method:
    return SharedEnsemble(members=chosen.members, init_std=chosen.factor_std, **prior)


BUILDERS: Final[Mapping[str, Callable[[AdversarialOOD, dict[str, Any]], Method]]] = {
    "map": lambda *_: MAP(),
    "mc_dropout": lambda *_: MCDropout(rate=DROPOUT),
    "mean_field": _mean_field,
    "shared_ensemble": _shared_ensemble,
}
METHODS: Final = (*BUILDERS, "mean_field_reg", "shared_ensemble_reg")


def method_named(chosen: AdversarialOOD, name: str, num_data: int) -> Method:
    """The method of a row; the regulariser is a matter of training."""
    prior = {"weight_decay": chosen.weight_decay, "num_data": num_data}
    return BUILDERS[name.removesuffix(REGULARISED)](chosen, prior)


def pretraining(chosen: AdversarialOOD) -> FitConfig:
    """How the network is trained that all methods start from."""
    return FitConfig(
        epochs=None if chosen.smoke else chosen.pretrain_epochs,
        steps=3 if chosen.smoke else None,
        batch_size=64,
        lr=2e-3,
        **_shared(chosen),
    )


def tuning(chosen: AdversarialOOD, name: str, seed: int) -> FitConfig:
    """The one budget of rows: with the regulariser half of them clean, half two noisy draws."""
    config = FitConfig(
        steps=chosen.steps,
        batch_size=chosen.batch_size,
        lr=chosen.lr,
        posterior_lr=chosen.log_std_lr if name.startswith("mean_field") else chosen.posterior_lr,
        **{**_shared(chosen), "seed": seed},
    )
    if not name.endswith(REGULARISED):
        return config
    penalty = OODRegularizer(alpha=chosen.alpha, gamma=chosen.gamma)
    return replace(config, batch_size=chosen.batch_size // 2, regularizer=penalty)


def _shared(chosen: AdversarialOOD) -> dict[str, Any]:
    return {
        "optimizer": "Adam",
        "weight_decay": chosen.weight_decay,
        "seed": chosen.seed,
        "device": chosen.device,
        "progress": False,
        "log_every": 10_000,
    }
