"""Rank-1 BNN: a mixture over the input and output factors of every layer."""

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
from leanbayes.posteriors.bank import Bank
from leanbayes.posteriors.factors import FactorBank, Law
from leanbayes.posteriors.points import PointFactors
from leanbayes.select import Site

PRESETS = {
    "init_std": (0.05, 0.5),
    "init_signs": (None, 0.5),
    "kl": ("mean", "sum"),
    "assign": ("split", "tile"),
}


@dataclass(frozen=True, kw_only=True)
class RankOne(MixtureMethod, name="rank_one"):
    """An ensemble that shares W and has random factors of its inputs and outputs by member.

    `y = (W (x * s_k)) * r_k + b_k`, that is `W_k = W * (r_k s_k^T)`. The factors s_k and r_k have a
    Gaussian or Cauchy law each, with one member index k for the whole network and a prior around 1;
    the shared W is a point with weight decay, each member has biases of its own. The KL is
    `mean_k KL_k`; the authors' code sums over the members, K times stronger (`kl="sum"`). The
    Cauchy KL is the closed form instead of one noisy sample. On a trained network the factors start
    at N(1, 0.05^2): random signs, as from scratch in the paper, destroy it, and cost 200 nats a
    factor against a prior at 1 (`tied_sign=True` centres the prior at the sign instead).

    Dusenberry et al., Efficient and scalable Bayesian neural nets with rank-1 factors, 2020. '0.4 %
    for a mixture of ten' in the paper is one component; at K = 4 it is 1.6 %.

    Cost: `2 K (I + O)` parameters a layer. A step costs about 1.2x (on an H200 in bf16 1.4x to
    1.6x), a prediction 1.1x for each draw.

    Attributes:
        members: Components K.
        law: `normal` or `cauchy`.
        prior_std: Scale of the prior around 1.
        stochastic: Which factors are random: `both`, `in` (s) or `out` (r); others are points.
        init_std: Spread of the members' means at the start.
        init_signs: Probability of +1 of initial means at +-1 (paper: 0.5), for training from
            scratch; None draws them around 1.
        init_scale: Scale at the start: 0.0316 (the paper's sqrt(p / (1 - p)) at p = 0.001), and
            0.001 for Cauchy, whose tails at 0.03 ruin a trained network. In the paper's preset
            Gaussians start at `softplus(rho)`, rho spread around that of the scale by N(0, 0.1^2)
            truncated at two deviations.
        clip: Draws are clipped to +- clip: 10 for Cauchy, whose tails need it, and in the paper's
            preset; a Gaussian around 1 never comes near it. `math.inf` never clips.
        tied_sign: Centre the prior at the sign of each mean.
        assign: `split`, `interleave`, or `tile` (every row trains every member; objective only).
        preset: `recommended` or `paper`.
    """

    paper: ClassVar[str] = "Dusenberry et al. 2020, Rank-1 BNN"
    cost: ClassVar[str] = "+1.6 % parameters at 4 members; training step 1.2x; 1.1x a draw"
    advice: ClassVar[str] = "an ensemble of low-rank members, each with noise of its own"
    kl_kind: ClassVar[KLKind] = "bound"
    rules: ClassVar[tuple[str, ...]] = ("mean", "sum", "pairwise")

    members: int = 4
    law: Law = "normal"
    prior_std: float = 0.1
    stochastic: Literal["both", "in", "out"] = "both"
    init_std: float | None = None
    init_signs: float | None = None
    init_scale: float | None = None
    clip: float | None = None
    tied_sign: bool = False
    assign: Assign | None = None  # type: ignore[assignment]
    kl: str | None = None  # type: ignore[assignment]
    preset: Preset = "recommended"

    def __post_init__(self) -> None:
        for name in PRESETS:
            value = settled(getattr(self, name), name, self.preset, PRESETS)
            object.__setattr__(self, name, value)
        if self.init_scale is None:
            heavy = self.law == "cauchy" and self.preset == "recommended"
            object.__setattr__(self, "init_scale", 0.001 if heavy else 0.0316)
        self.check()
        resolve_prior_std(self.prior_std, None, None)
        check_not_negative(init_std=self.init_std, init_scale=self.init_scale)
        if self.clip is not None and not self.clip > 0:
            raise ConfigError(f"clip must be a positive number or None, found {self.clip!r}")
        if self.stochastic not in ("both", "in", "out"):
            raise ConfigError(f"stochastic is 'both', 'in' or 'out', found {self.stochastic!r}")
        if self.law not in ("normal", "cauchy"):
            raise ConfigError(f"law is 'normal' or 'cauchy', found {self.law!r}")
        if self.law == "cauchy" and self.kl == "pairwise":
            raise ConfigError("kl='pairwise' is a bound for Gaussians; use kl='mean' for Cauchy")
        if self.tied_sign and self.kl == "pairwise":
            raise ConfigError(
                "kl='pairwise' is a bound for a prior that all members share; tied_sign=True gives "
                "each its own: write kl='mean'"
            )

    @property
    def bound(self) -> float | None:
        """Where draws are clipped; None where they are not."""
        if self.clip is not None:
            return self.clip
        return 10.0 if self.law == "cauchy" or self.preset == "paper" else None

    @property
    def default_samples(self) -> int:
        """In the paper's preset one of every member, four for the heavy tails of Cauchy."""
        paper = self.members * (4 if self.law == "cauchy" else 1)
        return paper if self.preset == "paper" else super().default_samples

    def slots(self, site: Site) -> dict[str, Posterior]:
        """Factors on both sides of every product, and biases by member where the layer has some."""
        sizes = site.host.factor_sizes(site.layer)
        if not sizes:
            return {}
        filled: dict[str, Posterior] = {
            slot: self._factors(site, size, slot.partition("_")[0])
            for slot, size in sizes.items()
            if not (slot == "in_scale" and site.depthwise)  # one product there: T5.8
        }
        for slot, tensor in site.tensors.items():
            if "bias" in slot:
                filled[slot] = Bank(
                    tensor, members=self.members, index="network", jitter=0.0, prior_std=None
                )
        return filled

    def _factors(self, site: Site, size: int, side: str) -> Posterior:
        like = next(iter(site.tensors.values()))
        spread = self.init_std or 0.0
        # The one factor of a depthwise layer stands for both sides.
        if self.stochastic not in ("both", side) and not site.depthwise:
            return PointFactors(like, size, members=self.members, init_std=spread)
        return FactorBank(
            like,
            size,
            members=self.members,
            law=self.law,
            prior_std=self.prior_std,
            init_spread=spread,
            init_std=(self.init_scale or 0.0) if spread else 0.0,
            init_rho_spread=0.1 if self.preset == "paper" and self.law == "normal" else 0.0,
            init_signs=self.init_signs if spread else None,
            clip=self.bound,
            kl_rule=self.kl,  # type: ignore[arg-type]
            tied_sign=self.tied_sign,
        )
