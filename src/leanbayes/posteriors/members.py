"""K whole copies of a tensor under one network index: the members of a deep ensemble."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from leanbayes.forms import Ask, Form, PerDraw, Selected, Shared
from leanbayes.noise import NoiseSource
from leanbayes.plan import Drawn, Scope
from leanbayes.posteriors.base import WithoutKL, member_index, member_of, spread_of


class Members(WithoutKL):
    """A uniform mixture of K points; the layer's own parameter is member 0.

    Every further member is a Parameter of its own, so that a member that a step does not use gets
    no gradient, and an optimiser leaves it and its momentum alone. The prior is weight decay, the
    same for every member.

    Args:
        further: Values of the members 1 to K - 1, each in the shape of the base.
        copies: Members that share the gradient of a step, and with it the weight decay: K where
            its rows are assigned to members, 1 where all of them are one member's (T4.4).
    """

    owns_base = True

    def __init__(self, further: Sequence[Tensor], copies: int = 1) -> None:
        super().__init__()
        self.copies = copies
        self.members = 1 + len(further)
        self.further = nn.ParameterList(further)

    def member(self, base: Tensor, k: int) -> Tensor:
        """The tensor of one member."""
        return base if k == 0 else self.further[k - 1]

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:  # noqa: ARG002
        """None is needed: the component is the draw."""
        return base.new_zeros(draws)

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:
        """The tensors of each draw's member, [draws, *base.shape]."""
        index = member_index(component, len(noise), self.members, noise.device)
        return torch.stack([base, *self.further])[index]

    def form(self, base: Tensor, scope: Scope, ask: Ask) -> Form:
        """As for any law, with a short way for a predicted sample of one member."""
        k = member_of(scope)
        return super().form(base, scope, ask) if k is None else Shared(self.member(base, k))

    def realise(self, base: Tensor, drawn: Drawn, scope: Scope) -> Form:
        """One member for all rows as it is; several as vectors, or as whole weights to choose from.

        Only members that the pass uses are read. A compiled graph cannot know which, and reads all.
        """
        component = scope.component(self.granularity)
        index = member_index(component, len(drawn.values), self.members, base.device)
        if torch.compiler.is_compiling():
            # By index: older Dynamos do not unpack a ParameterList.
            further = [self.further[k] for k in range(len(self.further))]
            values = torch.stack([base, *further])
        else:
            used, index = torch.unique(index, return_inverse=True)
            chosen = [self.member(base, k) for k in used.tolist()]
            if len(chosen) == 1:
                return Shared(self._proved(chosen[0], scope))
            values = torch.stack(chosen)
        if len(index) == 1 or base.dim() == 1:
            return Shared(values[index][0]) if len(index) == 1 else PerDraw(values[index])
        return Selected(values, index)

    def _proved(self, value: Tensor, scope: Scope) -> Tensor:
        """In the liveness check the output hangs on all members, though a pass uses but one."""
        if scope.trace is None or not torch.is_grad_enabled():
            return value
        return value + 0 * torch.stack(list(self.further)).sum(0) if len(self.further) else value

    def mean(self, base: Tensor, member: int | None = None) -> Tensor:
        """A member, or the average of all; exact where all are the base."""
        if member is not None:
            return self.member(base, member)
        others = torch.stack([base, *self.further]) - base
        return base + others.mean(0)

    def spread(self, base: Tensor) -> Tensor:
        """Over the members."""
        return spread_of(torch.stack([base, *self.further]))
