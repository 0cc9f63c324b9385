"""Running statistics of BatchNorm by predicted draw: weights far from their mean need their own."""

from __future__ import annotations

from torch import Tensor

from leanbayes.forms import Ask, Form, Shared
from leanbayes.noise import NoiseSource
from leanbayes.plan import Scope
from leanbayes.posteriors.base import WithoutKL, member_of


class DrawStatistics(WithoutKL):
    """Statistics of K fixed draws, as differences to those of the layer: 0 until they are measured.

    A slot without parameters, of the tensor [mean, variance] [2, C]. The mean network and training
    use the layer's own statistics.

    Args:
        base: The layer's own statistics.
        draws: Number of draws K.
    """

    differences: Tensor

    def __init__(self, base: Tensor, draws: int) -> None:
        super().__init__()
        self.register_buffer("differences", base.new_zeros(draws, *base.shape))

    def measure(self, draw: int, base: Tensor, values: Tensor) -> None:
        """Take over the statistics [2, C] of one draw."""
        self.differences[draw].copy_(values - base)

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:  # noqa: ARG002
        """None is needed: the component is the draw."""
        return base.new_zeros(draws)

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:
        """Those of each draw, [draws, 2, C]; the layer's own where the plan names none."""
        if component is None:
            return base.expand(len(noise), *base.shape)
        return base + self.differences[component]

    def form(self, base: Tensor, scope: Scope, ask: Ask) -> Form:
        """As for any law, with a short way for a single predicted draw."""
        k = member_of(scope)
        return super().form(base, scope, ask) if k is None else Shared(base + self.differences[k])

    def spread(self, base: Tensor) -> Tensor:  # noqa: ARG002
        """Over the draws."""
        return self.differences.std(0, correction=0)
