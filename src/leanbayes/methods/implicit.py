"""iBNN: Gaussian-mixture noise on the inputs of every layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from leanbayes.errors import ConfigError
from leanbayes.methods.assignment import Assign
from leanbayes.methods.base import KLKind
from leanbayes.methods.mixture import MixtureMethod
from leanbayes.methods.preset import Preset, settled
from leanbayes.methods.prior import check_not_negative, resolve_prior_std
from leanbayes.posteriors import Posterior
from leanbayes.posteriors.factors import FactorBank
from leanbayes.select import Site

PRESETS = {
    "init_std": (0.05, 0.5),
    "kl": ("mean", "averaged_draw"),
    "assign": ("split", "interleave"),
}


@dataclass(frozen=True, kw_only=True)
class Implicit(MixtureMethod, name="implicit"):
    """Random factors on the input channels of every layer: `f = act(W (z * x) + b)`.

    `q(z) = 1/K sum_k prod_layers N(mu_k, sigma_k^2)`, one index k for the whole network (eq. 18 of
    the paper factorises the mixture over layers, and eq. 19 prints a product where a sum belongs;
    training and prediction use one index, as here), prior `N(1, prior_std^2)`.

    The KL is `mean_k KL_k`, which is within ln K nats of the mixture's own for the whole network.
    The paper's surrogate, the KL of the average of one draw a member, is no bound in either sense
    and is smallest at sigma_k = sqrt(K) prior_std: `kl="averaged_draw"`, for reproduction.

    Trinh, Kaski and Heinonen, Scalable Bayesian neural networks by layer-wise input augmentation,
    2020.

    Cost: `2 K` parameters an input channel (0.3 % of a ResNet-18, 0.8 % of a ResNet-50 at K = 4). A
    step costs about 1.15x, a prediction 1.1x for each draw.

    Attributes:
        members: Components K.
        prior_std: Standard deviation of the prior around 1.
        side: Factors on the inputs (`in`, the paper) or on the outputs before the bias (`out`; the
            follow-up, node-BNN, scales after it).
        init_std: Spread of the members' means at the start; the paper's 0.5 destroys a trained net.
        init_scale: Scale sigma at the start (preset paper: |N(init_scale, 0.02^2)|).
        assign: `split` (the paper's text) or `interleave` (its code).
        preset: `recommended` or `paper`.
    """

    paper: ClassVar[str] = "Trinh et al. 2020, iBNN"
    cost: ClassVar[str] = "+0.3 to 1 % parameters at 4 members; training step 1.15x; 1.1x a draw"
    advice: ClassVar[str] = "better calibration, under shift as well, for almost no parameters"
    kl_kind: ClassVar[KLKind] = "bound"
    rules: ClassVar[tuple[str, ...]] = ("mean", "sum", "averaged_draw", "pairwise")

    members: int = 4
    prior_std: float = 0.1
    side: Literal["in", "out"] = "in"
    init_std: float | None = None
    init_scale: float = 0.05
    assign: Assign | None = None  # type: ignore[assignment]
    kl: str | None = None  # type: ignore[assignment]
    preset: Preset = "recommended"

    def __post_init__(self) -> None:
        for name in ("init_std", "kl", "assign"):
            value = settled(getattr(self, name), name, self.preset, PRESETS)
            object.__setattr__(self, name, value)
        self.check()
        resolve_prior_std(self.prior_std, None, None)
        check_not_negative(init_std=self.init_std, init_scale=self.init_scale)
        if self.side not in ("in", "out"):
            raise ConfigError(f"side is 'in' or 'out', found {self.side!r}")

    @property
    def default_samples(self) -> int:
        """In the paper's preset five of every member."""
        return 5 * self.members if self.preset == "paper" else super().default_samples

    def slots(self, site: Site) -> dict[str, Posterior]:
        """One factor bank a product of the layer: two in a recurrent cell, for x and for h."""
        sizes = site.host.factor_sizes(site.layer)
        return {
            slot: FactorBank(
                next(iter(site.tensors.values())),
                size,
                members=self.members,
                prior_std=self.prior_std,
                init_spread=self.init_std or 0.0,
                init_std=self.init_scale if self.init_std else 0.0,
                init_std_spread=0.02 if self.init_std and self.preset == "paper" else 0.0,
                kl_rule=self.kl,  # type: ignore[arg-type]
            )
            for slot, size in sizes.items()
            if slot.startswith(f"{self.side}_scale")
        }
