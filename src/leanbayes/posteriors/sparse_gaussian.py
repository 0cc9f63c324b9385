"""A Gaussian over a few entries of a tensor; the others are points. Scales are stored sparsely."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leanbayes.noise import NoiseSource
from leanbayes.ops import at_least_float32
from leanbayes.posteriors.estimators import Estimator, MeanFieldPosterior
from leanbayes.posteriors.kl import normal_kl
from leanbayes.posteriors.scale import inverse_softplus, softplus


class SparseGaussian(MeanFieldPosterior):
    """`w_i = base_i + softplus(rho_i) * eps_i` for i in `entries`, `w_i = base_i` elsewhere.

    Prior N(0, prior_std^2) and KL on those entries only (T3.2: a rho 'near zero' elsewhere would be
    a scale of softplus(0) = 0.69).

    Args:
        base: The parameter.
        entries: Flat indices of the random entries.
        prior_std: Standard deviation of the prior.
        init_rho: Mean and standard deviation of the initial rho.
        estimator: As for a full Gaussian.
    """

    entries: Tensor

    def __init__(
        self,
        base: Tensor,
        entries: Tensor,
        *,
        prior_std: float = 1.0,
        init_rho: tuple[float, float] = (-5.0, 0.1),
        estimator: Estimator = "auto",
    ) -> None:
        super().__init__(estimator)
        self.prior_std = prior_std
        self.register_buffer("entries", entries.to(base.device))
        mean, spread = init_rho
        rho = mean + spread * torch.randn(len(entries), device=base.device)
        self.rho = nn.Parameter(rho.to(base.dtype))

    def set_std(self, std: float) -> None:
        """Give every random entry one standard deviation; 0 makes the draw equal to the mean."""
        with torch.no_grad():
            self.rho.fill_(inverse_softplus(std))

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:
        """Standard normal numbers for the random entries, [draws, k]."""
        return source.normal(self.key, draws, self.entries.shape, base)

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """The mean with noise at the random entries, [draws, *base.shape]."""
        values = base.flatten().expand(len(noise), -1)
        drawn = values.index_add(1, self.entries, softplus(self.rho) * noise)
        return drawn.reshape(len(noise), *base.shape)

    def std(self, base: Tensor) -> Tensor:
        """Standard deviation of every entry, 0 where it is a point."""
        zeros = torch.zeros_like(base).flatten()
        return zeros.index_put((self.entries,), softplus(self.rho)).reshape(base.shape)

    def perturbation(self, base: Tensor, noise: Tensor) -> Tensor:
        """The noise of one draw, scattered."""
        zeros = torch.zeros_like(base).flatten()
        return zeros.index_put((self.entries,), softplus(self.rho) * noise).reshape(base.shape)

    def kl(self, base: Tensor) -> Tensor:
        """The closed form over the random entries, a scalar."""
        mean = at_least_float32(base).flatten()[self.entries]
        std = softplus(at_least_float32(self.rho))
        return normal_kl(mean, std, torch.zeros_like(mean), self.prior_std).sum()
