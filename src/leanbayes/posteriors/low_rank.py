"""Candidates `W * (L_k R_k)` of one shared tensor: BayesAdapter's parameter-sharing ensemble."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor, nn

from leanbayes.forms import Ask, Form, LowRank, Shared
from leanbayes.noise import KeyedNoise, NoiseSource
from leanbayes.ops import (
    as_multiplied,
    at_least_float32,
    candidate,
    few_draws,
    is_turned,
    multiplied_type,
)
from leanbayes.plan import Drawn, Scope
from leanbayes.posteriors.base import (
    Editable,
    Posterior,
    add_product,
    add_to_gradients,
    member_index,
    member_of,
)
from leanbayes.posteriors.joint import side_by_side
from leanbayes.posteriors.shards import whole


class LowRankScale(Posterior):
    """A uniform mixture of K points `A_k * W`, `A_k = L_k R_k`, with W shared and trained.

    Every entry of L and R starts as N(m, v^2) with `m = r^(-1/2)` and `v^2 = (sqrt(r p^2 + 1) - 1)
    / r`: each entry of A then has mean 1 and standard deviation p (T1.8). With p = 0 L is 1 and the
    columns of R add up to 1, so that A is 1 to the bit.

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
        if spread == 0:  # r products of two roots of 1 / r would not add up to 1 in floats
            with torch.no_grad():
                self.left.fill_(1.0)
                self.right.copy_(_parts_of_one(rank).to(base)[:, None])

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:  # noqa: ARG002
        """None is needed: the component is the draw."""
        return base.new_zeros(draws)

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:
        """The candidates, [draws, *base.shape]."""
        form = self._form(base, len(noise), component)
        return torch.stack([candidate(form, int(k)) for k in form.component])

    def form(self, base: Tensor, scope: Scope, ask: Ask) -> Form:
        """As for any law, with a short way for a predicted sample of one member."""
        k, source = member_of(scope), scope.plan.noise
        if k is None or not isinstance(source, KeyedNoise):
            return super().form(base, scope, ask)
        left, right = self._cast("left", source), self._cast("right", source)
        return Shared(candidate(LowRank(base, left, right, left), k))

    def _cast(self, name: str, source: KeyedNoise) -> Tensor:
        """A factor as autocast would make it for the product, once for all samples."""
        factor: Tensor = getattr(self, name)
        if multiplied_type(factor) == factor.dtype:
            return factor  # not remembered: shards may be gone by the next sample
        return source.remember(f"{self.key}#{name}", lambda: as_multiplied(factor))

    def realise(self, base: Tensor, drawn: Drawn, scope: Scope) -> Form:
        """One candidate for all rows, or the factors and which row takes which."""
        form = self._form(base, len(drawn.values), scope.component(self.granularity))
        if len(form.component) == 1:
            one = LowRank(
                base, self.left[form.component], self.right[form.component], form.component
            )
            return Shared(candidate(one, 0))
        return form._replace(order=scope.order(self.granularity))

    def joins(self, base: Tensor, scope: Scope) -> Hashable | None:
        """Candidates by row whose factors scale channels."""
        by_channel = self.right.shape[2] == base.shape[1]
        draws = scope.draws(self.granularity)
        scaling = draws > 1 and not (self.rank > 1 and few_draws(draws, scope.rows))
        return (self.members, self.granularity) if by_channel and scaling else None

    @classmethod
    def draw_together(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scope: Scope
    ) -> Sequence[Form]:
        """The factors of all as one table, of which every draw reads its candidate's row."""
        low = [(q, base) for q, base in sites if isinstance(q, LowRankScale)]
        tables = [p.flatten(1) for q, _ in low for p in (q.left, q.right)]
        first, base = low[0]
        draws, component = scope.draws(first.granularity), scope.component(first.granularity)
        index = member_index(component, draws, first.members, base.device)
        rows = side_by_side(tables).index_select(0, index)
        parts = torch.split(rows, [table.shape[1] for table in tables], 1)
        return [
            LowRank(base, q.left, q.right, index, picked=q._by_rank(left, right))
            for (q, base), left, right in zip(low, parts[::2], parts[1::2], strict=True)
        ]

    def _by_rank(self, left: Tensor, right: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """From flattened factors [D, ...] to those of one rank each."""
        if self.rank == 1:
            return (left,), (right,)
        return left.unflatten(1, (-1, self.rank)).unbind(2), right.chunk(self.rank, 1)  # type: ignore[no-untyped-call]

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
        if self.right.shape[2] * base.shape[0] == base.numel():
            return square.reshape(base.shape[0], -1)
        return square.sum(tuple(range(2, base.dim())))  # not reshaped: that copies channels last

    @classmethod
    def add_kl_grads(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scale: float, editable: Editable
    ) -> None:
        """Closed forms (BayesAdapter's eq. 6 with the sign of a minimiser), a few products each.

        With G_k = A_k * W^2: dL_k = G_k R_k^T, dR_k = L_k^T G_k, dW = W * mean_k A_k^2, all over
        prior_std^2 and the first two over K; K times as much where the terms are summed.
        """
        by_weight: dict[float, list[tuple[LowRankScale, Tensor]]] = defaultdict(list)
        for posterior, base in sites:
            assert isinstance(posterior, LowRankScale)
            weight = scale * posterior.share / posterior.prior_std**2
            by_weight[weight].append((posterior, base))
        with torch.no_grad():
            for weight, group in by_weight.items():
                plain = [(q, base) for q, base in group if q.rank == 1]
                edit_rank_one(plain, weight, editable)
                for posterior, base in group:
                    if posterior.rank > 1:
                        posterior._add_kl_grads(base, weight, editable)

    def _add_kl_grads(self, base: Tensor, weight: float, editable: Editable) -> None:
        tensor, left, right = (at_least_float32(whole(p)) for p in (base, self.left, self.right))
        product = left @ right
        inner = product * self._squares(tensor)
        pairs = [(self.left, inner @ right.mT), (self.right, left.mT @ inner)]
        add_to_gradients([pair for pair in pairs if editable(pair[0])], weight)
        if editable(base):
            add_product(base, tensor, spread_over(product.square_().sum(0), tensor), weight)


def _parts_of_one(rank: int) -> Tensor:
    """So many numbers that add up to 1 in any order and type: multiples of a power of two."""
    steps = 2 ** max(7, rank.bit_length())
    each = steps // rank
    whole_steps = [each] * (rank - 1) + [steps - (rank - 1) * each]
    parts: Tensor = torch.tensor(whole_steps, dtype=torch.float64) / steps
    return parts


def spread_over(matrix: Tensor, base: Tensor) -> Tensor:
    """A factor matrix in the shape of the tensor; columns by channel repeat over positions."""
    if matrix.numel() == base.numel():
        return matrix.reshape(base.shape)
    return matrix.reshape(*matrix.shape, *(1,) * (base.dim() - 2))


def edit_rank_one(
    group: Sequence[tuple[LowRankScale, Tensor]], weight: float, editable: Editable
) -> None:
    """`dL = L * (W^2 R^2)`, `dR = R * (L^2 W^2)`, `dW = W * (L^2 R^2)`: no candidate is built.

    Three products of matrices a tensor; the factors, short vectors, are squared and added at once.
    """
    if not group:
        return
    factors = [at_least_float32(whole(p)) for q, _ in group for p in (q.left, q.right)]
    squares = torch._foreach_mul(factors, factors)
    pulls: list[Tensor] = []
    for (_, base), left, right in zip(group, squares[::2], squares[1::2], strict=True):
        tensor = at_least_float32(whole(base))
        rows, columns = left.squeeze(2), _as_stored(right.squeeze(1), tensor)
        entries = _squared(tensor, columns.shape[1])
        pulls.append(torch.mm(columns, entries.T).unsqueeze(2))
        pulls.append(_as_named(torch.mm(rows, entries), tensor).unsqueeze(1))
        if editable(base):
            add_product(base, tensor, _over(torch.mm(rows.T, columns), tensor), weight)
    torch._foreach_mul_(pulls, factors)
    targets = [p for q, _ in group for p in (q.left, q.right)]
    pairs = zip(targets, pulls, strict=True)
    add_to_gradients([pair for pair in pairs if editable(pair[0])], weight)


def _squared(tensor: Tensor, columns: int) -> Tensor:
    """W^2 as a matrix: by channel, or by entry in the order of memory."""
    if columns * tensor.shape[0] != tensor.numel():
        return tensor.square().sum(tuple(range(2, tensor.dim())))
    return (tensor.permute(0, 2, 3, 1) if is_turned(tensor) else tensor).square().flatten(1)


def _reordered(columns: Tensor, tensor: Tensor) -> bool:
    return columns.shape[1] * tensor.shape[0] == tensor.numel() and is_turned(tensor)


def _as_stored(columns: Tensor, tensor: Tensor) -> Tensor:
    """Columns by kernel position in the order in which a tensor channels last holds them."""
    if not _reordered(columns, tensor):
        return columns
    return columns.reshape(-1, *tensor.shape[1:]).permute(0, 2, 3, 1).flatten(1)


def _as_named(columns: Tensor, tensor: Tensor) -> Tensor:
    """The inverse."""
    if not _reordered(columns, tensor):
        return columns
    return _named(columns, tensor).flatten(1)


def _over(matrix: Tensor, tensor: Tensor) -> Tensor:
    """A matrix of stored columns in the shape of the tensor."""
    return _named(matrix, tensor) if _reordered(matrix, tensor) else spread_over(matrix, tensor)


def _named(columns: Tensor, tensor: Tensor) -> Tensor:
    _, inputs, high, wide = tensor.shape
    return columns.reshape(-1, high, wide, inputs).permute(0, 3, 1, 2)
