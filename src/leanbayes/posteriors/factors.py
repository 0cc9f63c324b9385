"""Multiplicative factors by channel: a mixture of K Gaussians or Cauchys under one index."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from leanbayes.noise import NoiseSource
from leanbayes.ops import at_least_float32
from leanbayes.posteriors.base import Posterior, member_index
from leanbayes.posteriors.kl import cauchy_kl, normal_kl, pairwise_terms
from leanbayes.posteriors.scale import inverse_softplus, softplus
from leanbayes.posteriors.shards import whole

Law = Literal["normal", "cauchy"]
KLRule = Literal["mean", "sum", "averaged_draw", "pairwise"]


class FactorBank(Posterior):
    """q(s) = 1/K sum_k law(mean_k, scale_k), prior law(prior_mean, prior_std), over C channels.

    Args:
        like: A tensor that tells type and device.
        size: Number of channels C.
        members: Components K.
        law: `normal`, or `cauchy` (then `prior_std` and the scales are Cauchy scales).
        prior_std: Scale of the prior.
        init_spread: Standard deviation of the initial means around 1.
        init_std: Initial scale.
        clip: Draws are clipped to [-clip, clip]; None leaves them.
        kl_rule: Which terms `kl` gives: by member, of the average of the members' draws, pairwise.
        tied_sign: Centre the prior at the sign of each mean instead of at 1.
    """

    regularises_base = False

    def __init__(  # noqa: PLR0913
        self,
        like: Tensor,
        size: int,
        *,
        members: int = 4,
        law: Law = "normal",
        prior_std: float = 0.1,
        init_spread: float = 0.05,
        init_std: float = 0.05,
        clip: float | None = None,
        kl_rule: KLRule = "mean",
        tied_sign: bool = False,
    ) -> None:
        super().__init__()
        self.members, self.law, self.prior_std = members, law, prior_std
        self.clip, self.kl_rule, self.tied_sign = clip, kl_rule, tied_sign
        shape = (members, size)
        self.location = nn.Parameter(1 + init_spread * like.new_empty(shape).normal_())
        self.rho = nn.Parameter(like.new_full(shape, inverse_softplus(init_std)))

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:
        """Standard numbers of the law, [draws, C]."""
        size = self.location.shape[1:]
        if self.law == "normal":
            return source.normal(self.noise_key, draws, size, base)
        uniform = source.uniform(self.noise_key, draws, size, base)
        # Away from the ends, where the tangent is infinite.
        return torch.tan(math.pi * (uniform.clamp(1e-6, 1 - 1e-6) - 0.5))

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """`mean_k + scale_k * noise`, k the component of each draw."""
        k = member_index(component, len(noise), self.members, noise.device)
        value = torch.addcmul(self.location[k], softplus(self.rho)[k], noise)
        return value if self.clip is None else value.clamp(-self.clip, self.clip)

    def mean(self, base: Tensor, member: int | None = None) -> Tensor:  # noqa: ARG002
        """The location of a member, or their average."""
        return self.location.mean(0) if member is None else self.location[member]

    def kl(self, base: Tensor) -> Tensor:  # noqa: ARG002
        """Terms [K], [K, K] (pairwise), or a scalar (averaged_draw)."""
        mean = at_least_float32(whole(self.location))
        scale = softplus(at_least_float32(whole(self.rho)))
        centre = torch.sign(mean.detach()) if self.tied_sign else torch.ones_like(mean)
        if self.kl_rule == "averaged_draw":
            return self._averaged_draw_kl(mean, scale)
        rule = normal_kl if self.law == "normal" else cauchy_kl
        terms = rule(mean, scale, centre, self.prior_std).sum(1)
        return pairwise_terms(terms, mean, scale) if self.kl_rule == "pairwise" else terms

    def _averaged_draw_kl(self, mean: Tensor, scale: Tensor) -> Tensor:
        """KL of the law of the average of one draw a member (iBNN's surrogate, T2.3)."""
        average = mean.mean(0)
        spread = scale.square().sum(0).sqrt() / self.members
        return normal_kl(average, spread, torch.ones_like(average), self.prior_std).sum()
