"""Point factors by channel, one a member: BatchEnsemble's fast weights."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from torch import Tensor, nn

from leanbayes.forms import Ask, Form, Shared
from leanbayes.noise import NoiseSource
from leanbayes.plan import Scope
from leanbayes.posteriors.base import Posterior, WithoutKL, member_index, member_of, spread_of
from leanbayes.posteriors.joint import forms_of, side_by_side


class PointFactors(WithoutKL):
    """K factors over C channels under one network index, without a law of their own.

    Args:
        like: A tensor that tells type and device.
        size: Number of channels C.
        members: Members K.
        init_std: Standard deviation of the factors around 1 at the start.
    """

    def __init__(self, like: Tensor, size: int, *, members: int, init_std: float = 0.05) -> None:
        super().__init__()
        self.members = members
        self.location = nn.Parameter(1 + init_std * like.new_empty(members, size).normal_())

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:  # noqa: ARG002
        """None is needed: the component is the draw."""
        return base.new_zeros(draws)

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """The factors of each draw's member, [draws, C]."""
        index = member_index(component, len(noise), self.members, noise.device)
        # index_select: its backward pass adds rows, where that of indexing sorts them.
        return self.location.index_select(0, index)

    def form(self, base: Tensor, scope: Scope, ask: Ask) -> Form:
        """As for any law, with a short way for a predicted sample of one member."""
        k = member_of(scope)
        return super().form(base, scope, ask) if k is None else Shared(self.location[k])

    def joins(self, base: Tensor, scope: Scope) -> Hashable | None:  # noqa: ARG002
        """Factors of as many members."""
        return self.members, self.granularity, self.location.dtype

    @classmethod
    def draw_together(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scope: Scope
    ) -> Sequence[Form]:
        """As one table over the channels of all."""
        points = [q for q, _ in sites if isinstance(q, PointFactors)]
        first = points[0]
        draws, component = scope.draws(first.granularity), scope.component(first.granularity)
        index = member_index(component, draws, first.members, first.location.device)
        values = side_by_side([q.location for q in points]).index_select(0, index)
        return forms_of(values, [q.location.shape[1] for q in points])

    def mean(self, base: Tensor, member: int | None = None) -> Tensor:  # noqa: ARG002
        """The factors of a member, or their average."""
        return self.location.mean(0) if member is None else self.location[member]

    def spread(self, base: Tensor) -> Tensor:  # noqa: ARG002
        """Over the members."""
        return spread_of(self.location)
