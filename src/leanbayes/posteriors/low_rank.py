"""Candidates `W * (L_k R_k)` of one shared tensor: BayesAdapter's parameter-sharing ensemble."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from leanbayes.forms import Form, LowRank, Shared
from leanbayes.noise import NoiseSource
from leanbayes.ops import at_least_float32, candidate
from leanbayes.plan import Drawn, Scope
from leanbayes.posteriors.base import (
    Editable,
    Posterior,
    gradient_of,
    member_index,
)
from leanbayes.posteriors.shards import shard_like, whole


class LowRankScale(Posterior):
    """A uniform mixture of K points `A_k * W`, `A_k = L_k R_k`, with W shared and trained.

    Every entry of L and R starts as N(m, v^2) with `m = r^(-1/2)` and `v^2 = (sqrt(r p^2 + 1) - 1)
    / r`: each entry of A then has mean 1 and standard deviation p (T1.8).

    Args:
        base: The shared weight, seen as a matrix of `base.shape[0]` rows.
        members: Candidates K.
        rank: Rank r of the product.
        spread: Standard deviation p of the entries of A at the start.
        per_channel: One column a channel of dim 1, constant over kernel positions.
        prior_std: Scale of the prior in the cross-entropy.
        summed: The model sums the candidates' terms instead of averaging them.
    """

    closed_form = True

    def __init__(  # noqa: PLR0913
        self,
        base: Tensor,
        *,
        members: int = 20,
        rank: int = 1,
        spread: float = 0.1,
        per_channel: bool = False,
        prior_std: float = 1.0,
        summed: bool = False,
    ) -> None:
        super().__init__()
        self.members, self.rank, self.prior_std = members, rank, prior_std
        self.share = 1.0 if summed else 1.0 / members
        columns = base.shape[1] if per_channel else base[0].numel()
        mean = rank**-0.5
        std = math.sqrt((math.sqrt(rank * spread**2 + 1) - 1) / rank)
        left, right = (members, base.shape[0], rank), (members, rank, columns)
        self.left = nn.Parameter(mean + std * base.new_empty(left).normal_())
        self.right = nn.Parameter(mean + std * base.new_empty(right).normal_())

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:  # noqa: ARG002
        """None is needed: the component is the draw."""
        return base.new_zeros(draws)

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:
        """The candidates, [draws, *base.shape]."""
        form = self._form(base, len(noise), component)
        return torch.stack([candidate(form, int(k)) for k in form.component])

    def realise(self, base: Tensor, drawn: Drawn, scope: Scope) -> Form:
        """One candidate for all rows, or the factors and which row takes which."""
        form = self._form(base, len(drawn.values), scope.component(self.granularity))
        if len(form.component) == 1:
            one = LowRank(
                base, self.left[form.component], self.right[form.component], form.component
            )
            return Shared(candidate(one, 0))
        return form._replace(order=scope.order(self.granularity))

    def _form(self, base: Tensor, draws: int, component: Tensor | None) -> LowRank:
        index = member_index(component, draws, self.members, base.device)
        return LowRank(base, self.left, self.right, index)

    def mean(self, base: Tensor, member: int | None = None) -> Tensor:
        """A candidate, or the average of all."""
        if member is not None:
            return candidate(LowRank(base, self.left, self.right, self.left.new_zeros(1)), member)
        average = torch.einsum("kor,kri->oi", self.left, self.right) / self.members
        return base * spread_over(average, base)

    def spread(self, base: Tensor) -> Tensor:
        """`|W| std_k(A_k)` over the candidates, by running sums: no K tensors lie side by side."""
        first = self.left[0] @ self.right[0]
        total, square = torch.zeros_like(first), torch.zeros_like(first)
        for left, right in zip(self.left, self.right, strict=True):
            gap = left @ right - first
            total, square = total + gap, square + gap.square()
        variance = square / self.members - (total / self.members).square()
        return base.abs() * spread_over(variance.clamp_min(0).sqrt(), base)

    def kl(self, base: Tensor) -> Tensor:
        """Cross-entropy of every candidate, `|A_k * W|^2 / (2 prior_std^2)`, [K]."""
        squares = self._squares(whole(base))
        left, right = at_least_float32(whole(self.left)), at_least_float32(whole(self.right))
        if self.rank == 1:  # |l r * W|^2 = l^2 . (W^2 r^2): no candidate is ever built
            terms = torch.einsum("ko,oi,ki->k", left[..., 0] ** 2, squares, right[:, 0] ** 2)
        else:
            product = left @ right
            terms = torch.einsum("koi,oi->k", product.square(), squares)
        return terms / (2 * self.prior_std**2)

    def _squares(self, base: Tensor) -> Tensor:
        """W^2 as a matrix with the columns of the right factor."""
        square = at_least_float32(base).square()
        return square.reshape(base.shape[0], self.right.shape[2], -1).sum(-1)

    @classmethod
    def add_kl_grads(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scale: float, editable: Editable
    ) -> None:
        """Closed forms (BayesAdapter's eq. 6 with the sign of a minimiser), a few products each.

        With G_k = A_k * W^2: dL_k = G_k R_k^T, dR_k = L_k^T G_k, dW = W * mean_k A_k^2, all over
        prior_std^2 and the first two over K; K times as much where the terms are summed.
        """
        with torch.no_grad():
            for posterior, base in sites:
                assert isinstance(posterior, LowRankScale)
                posterior._add_kl_grads(base, scale / posterior.prior_std**2, editable)

    def _add_kl_grads(self, base: Tensor, scale: float, editable: Editable) -> None:
        weight, left, right = (at_least_float32(whole(p)) for p in (base, self.left, self.right))
        squares = self._squares(weight)
        if self.rank == 1:
            l2, r2 = left[..., 0] ** 2, right[:, 0] ** 2
            parts = (left * (r2 @ squares.T)[..., None], right * (l2 @ squares)[:, None], l2.T @ r2)
        else:
            product = left @ right
            inner = product * squares
            parts = (inner @ right.mT, left.mT @ inner, product.square().sum(0))
        shared = weight * spread_over(parts[2], weight)
        for target, grad in ((self.left, parts[0]), (self.right, parts[1]), (base, shared)):
            if editable(target):
                part = shard_like(grad.to(target.dtype), target)
                gradient_of(target).add_(part, alpha=scale * self.share)


def spread_over(matrix: Tensor, base: Tensor) -> Tensor:
    """A factor matrix in the shape of the tensor; columns by channel repeat over positions."""
    if matrix.shape[1] == base[0].numel():
        return matrix.reshape(base.shape)
    return matrix.reshape(*matrix.shape, *(1,) * (base.dim() - 2))
