"""A Gaussian over a few entries of a tensor; the others are points. Scales are stored sparsely."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate
from typing import Any, Literal

import torch
from torch import Tensor, nn

from leanbayes.forms import Ask, Form, Moments, PerDraw, Shared
from leanbayes.noise import KeyedNoise, NoiseSource
from leanbayes.ops import at_least_float32
from leanbayes.plan import Drawn, Scope
from leanbayes.posteriors.base import Editable, Posterior, gradient_of, like_gradient
from leanbayes.posteriors.estimators import Estimator, MeanFieldPosterior
from leanbayes.posteriors.kl import normal_kl
from leanbayes.posteriors.scale import inverse_softplus, softplus
from leanbayes.posteriors.shards import is_shard, local_parts, whole

Reduction = Literal["sum", "tensor_mean"]


class SparseGaussian(MeanFieldPosterior):
    """`w_i = base_i + softplus(rho_i) * eps_i` for i in `entries`, `w_i = base_i` elsewhere.

    Prior N(0, prior_std^2) and KL on those entries only (T3.2: a rho 'near zero' elsewhere would be
    a scale of softplus(0) = 0.69). With s = softplus(rho),
    `KL = sum_i (ln(prior_std / s_i) + (s_i^2 + base_i^2) / (2 prior_std^2) - 1/2)`.

    A draw copies the tensor and adds k numbers; backward hands the gradient on and reads k of it.

    Args:
        base: The parameter; only its type and device are read.
        entries: Flat indices of the random entries, in the order of the contiguous tensor.
        prior_std: Standard deviation of the prior.
        init_rho: Mean and standard deviation of the initial rho.
        estimator: As for a full Gaussian, but `auto` draws once a group, except where a layer can
            integrate the noise out (a Linear with one row a draw).
        reduction: `sum`, or the mean over the random entries of the tensor.
    """

    closed_form = True

    entries: Tensor

    def __init__(
        self,
        base: Tensor,
        entries: Tensor,
        *,
        prior_std: float = 1.0,
        init_rho: tuple[float, float] = (-5.0, 0.1),
        estimator: Estimator = "auto",
        reduction: Reduction = "sum",
    ) -> None:
        super().__init__(estimator)
        if estimator == "auto":
            self.granularity = "batch"
        self.prior_std, self.reduction = prior_std, reduction
        self.register_buffer("entries", entries.to(base.device, torch.int64))
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
        form = self._shifted(base, softplus(self.rho) * noise)
        return form.value.unsqueeze(0) if isinstance(form, Shared) else form.value

    def _shifted(self, base: Tensor, shift: Tensor) -> Shared | PerDraw:
        """The mean plus shifts [draws, k] at the random entries."""
        shift = shift.to(base.dtype)
        if len(shift) == 1:  # `put` keeps the memory format and takes flat indices all the same
            return Shared(torch.put(base, self.entries, shift[0], accumulate=True))
        copies = base.flatten().expand(len(shift), -1)
        values = copies.index_add(1, self.entries, shift)
        return PerDraw(values.reshape(len(shift), *base.shape))

    def std(self, base: Tensor) -> Tensor:
        """Standard deviation of every entry, 0 where it is a point."""
        return self._scattered(base, softplus(self.rho))

    def perturbation(self, base: Tensor, noise: Tensor) -> Tensor:
        """The noise of one draw, scattered."""
        return self._scattered(base, softplus(self.rho) * noise)

    def _scattered(self, base: Tensor, values: Tensor) -> Tensor:
        zeros = values.new_zeros(base.numel())
        return zeros.index_put((self.entries,), values).reshape(base.shape)

    def form(self, base: Tensor, scope: Scope, ask: Ask) -> Form:
        """As for any mean field, with short ways for predictions and for integrated noise."""
        source = scope.plan.noise
        if isinstance(source, KeyedNoise) and not torch.is_grad_enabled():
            std = source.remember(self.key, lambda: softplus(self.rho))
            return self._shifted(base, std * self.noise(base, scope.draws("batch"), source))
        if self._local(scope, ask):
            scope.visit(self.key)
            return Moments(base, self._scattered(base, softplus(self.rho).square()))
        return super().form(base, scope, ask)

    def realise(self, base: Tensor, drawn: Drawn, scope: Scope) -> Form:
        """Explicit draws, or mean, perturbation and signs."""
        if drawn.sign1 is not None:
            return super().realise(base, drawn, scope)
        return self._shifted(base, softplus(self.rho) * drawn.values.to(self.rho.dtype))

    def joins(self, base: Tensor, scope: Scope) -> Hashable | None:  # noqa: ARG002
        """Tensors of which the pass takes one draw."""
        return self.rho.dtype if scope.draws(self.granularity) == 1 else None

    @classmethod
    def draw_together(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scope: Scope
    ) -> Sequence[Form]:
        """The noise of all as one vector, of which every tensor gets its part."""
        ordered = _vectors_last(sites)
        rho = torch.cat([q.rho for q, _ in ordered])
        noise = scope.source.normal("", 1, rho.shape, sites[0][1])[0]
        shift = (softplus(rho) * noise.to(rho.dtype)).to(noise.dtype)
        forms = _placed(ordered, shift, _entries)
        return [forms[q.key] for q, _ in sites]

    def joins_keyed(self, base: Tensor) -> Hashable | None:  # noqa: ARG002
        """All of them."""
        return self.rho.dtype

    @classmethod
    def predict_together(
        cls,
        sites: Sequence[tuple[Posterior, Tensor]],
        scope: Scope,  # noqa: ARG003
        source: KeyedNoise,
    ) -> Sequence[Form]:
        """The same with the numbers of every key; scales and places are found once a prediction."""
        ordered = _vectors_last(sites)
        key, sizes = ordered[0][0].key, [len(q.rho) for q, _ in ordered]
        std = source.remember(
            f"{key}#stds", lambda: torch.cat([softplus(q.rho) for q, _ in ordered])
        )
        noise = source.normal_row([q.key for q, _ in ordered], sizes, ordered[0][1])
        shift = (std * noise).to(noise.dtype)
        forms = _placed(
            ordered,
            shift,
            lambda vectors: source.remember(f"{key}#entries", lambda: _entries(vectors)),
        )
        return [forms[q.key] for q, _ in sites]

    @property
    def kl_factor(self) -> float:
        """1, or 1 / k under the reduction by tensor."""
        return 1.0 if self.reduction == "sum" else 1.0 / len(self.entries)

    def kl(self, base: Tensor) -> Tensor:
        """The closed form over the random entries, a scalar; shards are gathered first."""
        mean = at_least_float32(torch.take(whole(base), self.entries))
        std = softplus(at_least_float32(whole(self.rho)))
        terms = normal_kl(mean, std, torch.zeros_like(mean), self.prior_std)
        return self.kl_factor * terms.sum()

    @classmethod
    def add_kl_grads(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scale: float, editable: Editable
    ) -> None:
        """`+ scale * base_i / prior_std^2`, `+ scale * (s / prior_std^2 - 1 / s) * sigmoid(rho)`.

        Two kernels a tensor for the means, a few in all for the scales. Shards are edited where
        they lie, without communication.
        """
        groups: dict[tuple[object, ...], list[SparseGaussian]] = defaultdict(list)
        means: list[tuple[SparseGaussian, Tensor]] = []
        for posterior, base in sites:
            assert isinstance(posterior, SparseGaussian)
            if editable(base):
                means.append((posterior, base))
            rho = posterior.rho
            if editable(rho):
                alike = (posterior.prior_std, posterior.kl_factor, rho.device, rho.dtype)
                groups[alike].append(posterior)
        with torch.no_grad():
            _edit_means(means, scale)
            for group in groups.values():
                _edit_scales(group, scale * group[0].kl_factor)

    def extra_repr(self) -> str:
        """The number of random entries."""
        return f"entries={len(self.entries)}, prior_std={self.prior_std:g}"


Sites = Sequence[tuple[SparseGaussian, Tensor]]


def _vectors_last(sites: Sequence[tuple[Posterior, Tensor]]) -> Sites:
    """Vectors behind the others: their parts of the noise lie together, and are added as one."""
    sparse = [(q, base) for q, base in sites if isinstance(q, SparseGaussian)]
    return sorted(sparse, key=lambda site: site[1].dim() == 1)


def _placed(
    sites: Sites, shift: Tensor, entries_of: Callable[[Sites], Tensor]
) -> dict[str, Shared]:
    """The tensors with the shifts of all, side by side, at their entries."""
    larger = [(q, base) for q, base in sites if base.dim() != 1]
    sizes = [len(q.rho) for q, _ in larger]
    *shifts, rest = torch.split(shift, [*sizes, len(shift) - sum(sizes)])
    drawn = zip(larger, shifts, strict=True)
    values = [torch.put(base, q.entries, s, accumulate=True) for (q, base), s in drawn]
    vectors = sites[len(larger) :]
    if vectors:
        joined = torch.cat([base for _, base in vectors])
        moved = joined.index_add(0, entries_of(vectors), rest)
        values += torch.split(moved, [len(base) for _, base in vectors])
    return {q.key: Shared(v) for (q, _), v in zip(sites, values, strict=True)}


def _entries(vectors: Sites) -> Tensor:
    """The random entries of vectors that lie side by side."""
    starts = [*accumulate((len(base) for _, base in vectors), initial=0)][:-1]
    return torch.cat(torch._foreach_add([q.entries for q, _ in vectors], starts))


def _edit_means(sites: Sequence[tuple[SparseGaussian, Tensor]], scale: float) -> None:
    if not sites:
        return
    entries = [local_entries(q.entries, base) for q, base in sites]
    grads = local_parts([gradient_of(base) for _, base in sites])
    bases = local_parts([base for _, base in sites])
    pulls = [
        like_gradient(torch.take(base, own), grad)
        for base, own, grad in zip(bases, entries, grads, strict=True)
    ]
    torch._foreach_mul_(pulls, [scale * q.kl_factor / q.prior_std**2 for q, _ in sites])
    for grad, own, pull in zip(grads, entries, pulls, strict=True):
        grad.put_(own, pull, accumulate=True)


def _edit_scales(group: list[SparseGaussian], scale: float) -> None:
    """All rhos as one vector: a handful of kernels for the whole network."""
    rhos = local_parts([posterior.rho for posterior in group])
    grads = local_parts([gradient_of(posterior.rho) for posterior in group])
    rho = at_least_float32(torch.cat(rhos))
    std = softplus(rho)
    pull = (std / group[0].prior_std ** 2 - std.reciprocal()).mul_(rho.sigmoid()).mul_(scale)
    parts = torch.split(pull.to(grads[0].dtype), [len(part) for part in rhos])
    torch._foreach_add_(grads, list(parts))


def local_entries(entries: Tensor, base: Any) -> Tensor:
    """Flat indices into the whole tensor as flat indices into the shard of this process."""
    if not is_shard(base):
        return entries
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, offset = compute_local_shape_and_global_offset(
        base.shape, base.device_mesh, base.placements
    )
    local, inside = torch.zeros_like(entries), torch.ones_like(entries, dtype=torch.bool)
    where = torch.unravel_index(entries, base.shape)
    for index, size, start in zip(where, shape, offset, strict=True):
        inside &= (index >= start) & (index < start + size)
        local = local * size + index - start
    return local[inside]
