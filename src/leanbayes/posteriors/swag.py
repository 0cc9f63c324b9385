"""A Gaussian with a diagonal and a low-rank part; the low-rank noise is the whole network's."""

from __future__ import annotations

import torch
from torch import Tensor

from leanbayes.forms import Form, PerDraw, Shared
from leanbayes.noise import FixedNoise, NoiseSource
from leanbayes.plan import Drawn, Scope
from leanbayes.posteriors.fixed_gaussian import FixedGaussian, frozen

# Keys the low-rank noise: one vector a sample for every tensor of the network.
COMMON = "swag#rank"


class LowRankGaussian(FixedGaussian):
    """`w = base + std * z1 + sum_r deviations[r] * z2[r]`, z1 by entry, z2 common to all tensors.

    The raw noise of a draw is one flat vector, z1 followed by z2.

    Args:
        base: The parameter, and the mean.
        rank: Number of deviations R; 0 leaves the diagonal alone.
        std: Standard deviation of every entry until one is measured.
        fixed_row: A row without noise (the padding row of an embedding).
    """

    def __init__(
        self, base: Tensor, *, rank: int, std: float = 0.0, fixed_row: int | None = None
    ) -> None:
        super().__init__(base, std=std, fixed_row=fixed_row)
        self.rank = rank
        self.deviations = frozen(base.new_zeros(rank, *base.shape)) if rank else None

    def set_deviation(self, index: int, value: Tensor) -> None:
        """Store one deviation."""
        assert self.deviations is not None
        with torch.no_grad():
            self.deviations[index].copy_(value)
            if self.fixed_row is not None:
                self.deviations[index, self.fixed_row] = 0

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:
        """Standard normal numbers, [draws, entries + rank]."""
        own = source.normal(self.key, draws, base.shape, base)
        if isinstance(source, FixedNoise) or not self.rank:  # made here beforehand, or complete
            return own.reshape(draws, -1)
        common = source.normal(COMMON, draws, (self.rank,), base)
        return torch.cat([own.reshape(draws, -1), common], 1)

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Mean, diagonal and low-rank part, [draws, *base.shape]."""
        return self._combined(base, *self._split(noise))

    def spread(self, base: Tensor) -> Tensor:  # noqa: ARG002
        """`sqrt(std^2 + sum_r deviations[r]^2)`."""
        if self.deviations is None:
            return self.std
        return (self.std.square() + self.deviations.square().sum(0)).sqrt()

    def realise(self, base: Tensor, drawn: Drawn, scope: Scope) -> Form:
        """As `draw`; fresh noise has no keys, so the first tensor leaves its z2 to the others.

        Every tensor draws a z2 whether it is used or not: a block that is computed again in
        backward thus takes the same numbers from the generator.
        """
        own, common = self._split(drawn.values.to(base.dtype))
        if scope.plan.noise is None:
            common = scope.shared.setdefault(COMMON, Drawn(common)).values.to(own)
        values = self._combined(base, own, common)
        return Shared(values[0]) if len(values) == 1 else PerDraw(values)

    def _split(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        entries = noise.shape[1] - self.rank
        return noise[:, :entries].reshape(len(noise), *self.std.shape), noise[:, entries:]

    def _combined(self, base: Tensor, own: Tensor, common: Tensor) -> Tensor:
        values = torch.addcmul(base, self.std, own)
        if self.deviations is None:
            return values
        return values + (common @ self.deviations.flatten(1)).reshape(values.shape)
