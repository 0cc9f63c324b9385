"""How the networks of the experiment on adversarial inputs are trained, and what was tried.

Settings were chosen on the last 1,000 training images (`--set held_out=true`), never on a test
image, with one seed, 500 clean and 60 attacked images. Average precision of noise and of PGD by
mutual information, and accuracy; eps 0.1. The rates are that of the network and that of what the
method added; alpha 3, log-scales from -4.5 to -3.5, no margin and 400 steps unless said.

    without the regulariser, width 2, 1e-2 and 1e-2 or 3e-3:
        mean_field 0.53, 0.52, 0.850; shared_ensemble 0.52, 0.54, 0.880; map by entropy 0.46, 0.880
    mean_field_reg, width 1: 1e-3, 1e-2, 200 steps: 0.51, 0.54, 0.841
        500 steps: 3e-3, 3e-2: 0.49, 0.66, 0.775; 1e-2, 3e-2: 0.91, 0.96, 0.781
        1e-2, 1e-2, alpha 1: noise 0.51, 0.847
    mean_field_reg, width 2: 1e-2, 1e-2: 0.98, 0.93, 0.840; another seed 0.99, 0.99, 0.848
        margin 0.5: 0.99, 0.98, 0.852; 600 steps, the other seed: 1.00, 1.00, 0.844
        log-scales from -5.5 to -4.5: 0.62, 0.58, 0.872; from -4 to -3: 1.00, 1.00, 0.834
        2e-2, 1e-2: 0.99, 0.97, 0.788; 5e-3, 3e-2, alpha 1: noise 0.54, 0.755
    shared_ensemble_reg, width 1: 1e-3, 1e-2, 200 steps: 0.52, 0.63, 0.837
        500 steps: 3e-3, 3e-3: 0.64, 0.65, 0.842; 1e-2, 1e-2: 0.54, 0.64, 0.834
        1e-2, 3e-3, alpha 1: noise 0.51, 0.846
    shared_ensemble_reg, width 2: 1e-2, 3e-3: 1.00, 0.98, 0.840; another seed 0.99, 0.94, 0.844
        margin 0.5: 1.00, 0.97, 0.848; 2e-2, 3e-3: 1.00, 0.98, 0.824
        5e-3, 1e-3, alpha 1: noise 0.53, 0.871

(Width 1 and alpha 1: 20 members and draws, 1,000 clean images, 50 or 100 attacked ones; at 500
steps the attack had 4 draws.) The network has to learn to see noise, which takes a high rate and
enough filters in its first layer. So: width 2, rates of 1e-2 and 1e-2 or 3e-3, margin 0.5, and 500
steps to be on the safe side.

After the run on the test images, and changing nothing: with a rate of 3e-3 for its log-scales
mean_field has the better NLL on the held-out images (0.347 instead of 0.377) and is as blind (0.52,
0.52, 0.872), but mean_field_reg then sees the noise and not the attack (0.82, 0.58, 0.860; another
seed 0.93, 0.44, 0.856): scales that are too small leave the attacker a way around.
"""

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
