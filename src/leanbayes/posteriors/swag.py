"""A Gaussian with a diagonal and a low-rank part; the low-rank noise is the whole network's."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import torch
from torch import Tensor

from leanbayes.forms import Form, Shared, by_draw
from leanbayes.noise import KeyedNoise, NoiseSource
from leanbayes.plan import Drawn, Scope
from leanbayes.posteriors.base import Posterior
from leanbayes.posteriors.fixed_gaussian import FixedGaussian, frozen

# Keys the low-rank noise: one vector a sample for every tensor of the network.
COMMON = "swag#rank"
JOINED = 2**22  # entries whose noise is made in one go: a hash takes several times their memory


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
        if not self.rank:
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
        return by_draw(self._combined(base, own, common))

    def joins_keyed(self, base: Tensor) -> Hashable | None:  # noqa: ARG002
        """Laws with as many deviations."""
        return self.rank

    @classmethod
    def predict_together(
        cls,
        sites: Sequence[tuple[Posterior, Tensor]],
        scope: Scope,  # noqa: ARG003
        source: KeyedNoise,
    ) -> Sequence[Form]:
        """The noise of many tensors in one go: a hash takes dozens of kernels of any size."""
        laws = [(q, base) for q, base in sites if isinstance(q, LowRankGaussian)]
        rank, like = laws[0][0].rank, laws[0][1]
        common = source.normal(COMMON, 1, (rank,), like)
        drawn: list[Form] = []
        for group in _portions(laws):
            sizes = [base.numel() for _, base in group]
            row = source.normal_row([q.key for q, _ in group], sizes, like)
            for (q, base), own in zip(group, torch.split(row, sizes), strict=True):
                drawn.append(Shared(q._combined(base, own.reshape(1, *base.shape), common)[0]))
        return drawn

    def _split(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        entries = noise.shape[1] - self.rank
        return noise[:, :entries].reshape(len(noise), *self.std.shape), noise[:, entries:]

    def _combined(self, base: Tensor, own: Tensor, common: Tensor) -> Tensor:
        values = torch.addcmul(base, self.std, own)
        if self.deviations is None:
            return values
        return values + (common @ self.deviations.flatten(1)).reshape(values.shape)


def _portions(
    laws: Sequence[tuple[LowRankGaussian, Tensor]],
) -> Iterator[list[tuple[LowRankGaussian, Tensor]]]:
    """The tensors in their order, cut where the entries of a portion would be too many."""
    portion, entries = list[tuple[LowRankGaussian, Tensor]](), 0
    for law in laws:
        size = law[1].numel()
        if portion and entries + size > JOINED:
            yield portion
            portion, entries = [], 0
        portion.append(law)
        entries += size
    yield portion
