"""Multiplicative factors by channel: a mixture of K Gaussians or Cauchys under one index."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from leanbayes.forms import Ask, Form, Shared
from leanbayes.noise import KeyedNoise, NoiseSource
from leanbayes.ops import at_least_float32
from leanbayes.plan import Scope
from leanbayes.posteriors.base import (
    Editable,
    Posterior,
    gradient_of,
    like_gradient,
    member_index,
    member_of,
    spread_of,
)
from leanbayes.posteriors.joint import forms_of, side_by_side
from leanbayes.posteriors.kl import cauchy_kl, normal_kl, pairwise_terms
from leanbayes.posteriors.scale import inverse_softplus, softplus
from leanbayes.posteriors.shards import local_parts, whole

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
        init_std_spread: The initial scales are |N(init_std, init_std_spread^2)|.
        init_rho_spread: Spread of the initial rho (the scale before softplus) instead, by a normal
            law that is truncated at two deviations.
        init_signs: Probability of +1 of initial means at +-1 instead; None draws around 1.
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
        init_std_spread: float = 0.0,
        init_rho_spread: float = 0.0,
        init_signs: float | None = None,
        clip: float | None = None,
        kl_rule: KLRule = "mean",
        tied_sign: bool = False,
    ) -> None:
        super().__init__()
        self.members, self.law, self.prior_std = members, law, prior_std
        self.clip, self.kl_rule, self.tied_sign = clip, kl_rule, tied_sign
        self.closed_form = kl_rule in ("mean", "sum")
        shape = (members, size)
        start = 1 + init_spread * like.new_empty(shape).normal_()
        if init_signs is not None:
            start = 2 * torch.bernoulli(torch.full_like(start, init_signs)) - 1
        self.location = nn.Parameter(start)
        self.rho = nn.Parameter(like.new_full(shape, inverse_softplus(init_std)))
        if init_rho_spread:
            with torch.no_grad():
                self.rho.add_(_truncated_normal(self.rho, init_rho_spread))
        if init_std_spread:
            scales = torch.full_like(start, init_std).addcmul_(
                torch.randn_like(start), torch.full_like(start, init_std_spread)
            )
            with torch.no_grad():
                self.rho.copy_(scales.abs().clamp_min(1e-6).expm1().log())

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:
        """Standard numbers of the law, [draws, C]."""
        return self.numbers(draws, self.location.shape[1:], base, source)

    def numbers(self, draws: int, size: Sequence[int], base: Tensor, source: NoiseSource) -> Tensor:
        """Standard numbers of the law for so many channels."""
        if self.law == "normal":
            return source.normal(self.noise_key, draws, size, base)
        return _cauchy(source.uniform(self.noise_key, draws, size, _fine(base))).to(base.dtype)

    def form(self, base: Tensor, scope: Scope, ask: Ask) -> Form:
        """As for any law, with a short way for a predicted sample of one member."""
        source, member = scope.plan.noise, member_of(scope)
        if member is None or not isinstance(source, KeyedNoise):
            return super().form(base, scope, ask)
        scale = source.remember(self.key, lambda: softplus(self.rho))[member]
        value = torch.addcmul(self.location[member], scale, self.noise(base, 1, source)[0])
        return Shared(value if self.clip is None else value.clamp_(-self.clip, self.clip))

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """`mean_k + scale_k * noise`, k the component of each draw."""
        return self.values(self.location, self.rho, noise, component)

    def values(
        self, location: Tensor, rho: Tensor, noise: Tensor, component: Tensor | None
    ) -> Tensor:
        """Draws of this law, for locations and scales of any channels."""
        k = member_index(component, len(noise), self.members, noise.device)
        # index_select: its backward pass adds rows, where that of indexing sorts them.
        mean, scale = location.index_select(0, k), softplus(rho).index_select(0, k)
        value = torch.addcmul(mean, scale, noise)
        return value if self.clip is None else value.clamp(-self.clip, self.clip)

    def joins(self, base: Tensor, scope: Scope) -> Hashable | None:  # noqa: ARG002
        """Laws of one kind with the same draws."""
        return self.law, self.clip, self.members, self.granularity, self.location.dtype

    @classmethod
    def draw_together(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scope: Scope
    ) -> Sequence[Form]:
        """As one bank over the channels of all."""
        banks = [q for q, _ in sites if isinstance(q, FactorBank)]
        first, base = banks[0], sites[0][1]
        location, rho = (
            side_by_side([getattr(q, name) for q in banks]) for name in ("location", "rho")
        )
        noise = first.numbers(
            scope.draws(first.granularity), location.shape[1:], base, scope.source
        )
        component = scope.component(first.granularity)
        values = first.values(location, rho, noise.to(base.dtype), component)
        return forms_of(values, [q.location.shape[1] for q in banks])

    def joins_keyed(self, base: Tensor) -> Hashable | None:  # noqa: ARG002
        """Laws of one kind."""
        return self.law, self.clip, self.members, self.location.dtype

    @classmethod
    def predict_together(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scope: Scope, source: KeyedNoise
    ) -> Sequence[Form]:
        """As one bank over the channels of all, whose scales are found once a prediction."""
        banks = [q for q, _ in sites if isinstance(q, FactorBank)]
        first, member = banks[0], member_of(scope)
        if member is None:
            return [q.form(base, scope, Ask()) for q, base in sites]
        location, scale = _tables(banks, source)
        keys, sizes = [q.noise_key for q in banks], [q.location.shape[1] for q in banks]
        like = sites[0][1]
        if first.law == "normal":
            noise = source.normal_row(keys, sizes, like)
        else:
            noise = _cauchy(source.uniform_row(keys, sizes, _fine(like))).to(like.dtype)
        value = torch.addcmul(location[member], scale[member], noise)
        value = value if first.clip is None else value.clamp_(-first.clip, first.clip)
        return [Shared(part) for part in torch.split(value, sizes)]

    def mean(self, base: Tensor, member: int | None = None) -> Tensor:  # noqa: ARG002
        """The location of a member, or their average."""
        return self.location.mean(0) if member is None else self.location[member]

    def spread(self, base: Tensor) -> Tensor:  # noqa: ARG002
        """`sqrt(mean_k scale_k^2 + var_k mean_k)`; a Cauchy has its scale in place of a deviation.

        Clipping is left out.
        """
        return spread_of(self.location, softplus(self.rho).square())

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

    @classmethod
    def add_kl_grads(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scale: float, editable: Editable
    ) -> None:
        """Closed form, entry by entry, for all banks of one kind at once: they are short vectors.

        Normal: `d mean = (mean - 1) / s^2`, `d sigma = sigma / s^2 - 1 / sigma`. Cauchy with
        `D = (g + s)^2 + (mean - 1)^2`: `d mean = 2 (mean - 1) / D`, `d g = 2 (g + s) / D - 1 / g`.
        Under `mean` the terms of the K members count 1/K.
        """
        alike: dict[tuple[Any, ...], list[FactorBank]] = defaultdict(list)
        for posterior, _ in sites:
            assert isinstance(posterior, FactorBank)
            share = 1 / posterior.members if posterior.kl_rule == "mean" else 1.0
            kind = (posterior.law, posterior.prior_std, posterior.tied_sign, scale * share)
            alike[kind].append(posterior)
        with torch.no_grad():
            for (law, prior_std, tied, weight), banks in alike.items():
                mean, rho = _joined([q.location for q in banks]), _joined([q.rho for q in banks])
                gap = mean - (mean.sign() if tied else 1)
                d_mean, d_scale = _slopes(law, gap, softplus(rho), prior_std)
                d_rho = d_scale * torch.sigmoid(rho)
                _add([q.location for q in banks], d_mean, weight, editable)
                _add([q.rho for q in banks], d_rho, weight, editable)


def _tables(banks: Sequence[FactorBank], source: KeyedNoise) -> tuple[Tensor, Tensor]:
    """Locations and scales of all banks, [K, channels of all]."""
    key = banks[0].key
    return (
        source.remember(f"{key}#locations", lambda: torch.cat([q.location for q in banks], 1)),
        source.remember(f"{key}#scales", lambda: torch.cat([softplus(q.rho) for q in banks], 1)),
    )


def _truncated_normal(like: Tensor, std: float) -> Tensor:
    return nn.init.trunc_normal_(torch.empty_like(like), 0.0, std, -2 * std, 2 * std)


def _fine(like: Tensor) -> Tensor:
    """Where uniform numbers are drawn: in half precision the ends would come far too often."""
    return like if like.dtype.itemsize >= 4 else like.new_empty((), dtype=torch.float32)


def _cauchy(uniform: Tensor) -> Tensor:
    """Standard Cauchy numbers, away from the ends, where the tangent is infinite."""
    return torch.tan(math.pi * (uniform.clamp(1e-6, 1 - 1e-6) - 0.5))


def _slopes(law: Law, gap: Tensor, scale: Tensor, prior: float) -> tuple[Tensor, Tensor]:
    """Derivatives of the KL by location and by scale."""
    if law == "normal":
        return gap / prior**2, scale / prior**2 - 1 / scale
    distance = (scale + prior).square() + gap.square()
    return 2 * gap / distance, 2 * (scale + prior) / distance - 1 / scale


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    parts = [at_least_float32(part) for part in local_parts(tensors)]
    joined: Tensor = _flatten_dense_tensors(parts)  # type: ignore[no-untyped-call]
    return joined


def _add(targets: Sequence[Tensor], grad: Tensor, weight: float, editable: Editable) -> None:
    """Add the pieces of a joined gradient to the gradients of the targets."""
    pieces = _unflatten_dense_tensors(grad, local_parts(targets))  # type: ignore[no-untyped-call]
    pairs = [
        (gradient_of(target), piece)
        for target, piece in zip(targets, pieces, strict=True)
        if editable(target) and piece.numel()  # a process may have no shard
    ]
    if pairs:
        grads = local_parts([g for g, _ in pairs])
        pulls = [like_gradient(piece, g) for g, (_, piece) in zip(grads, pairs, strict=True)]
        torch._foreach_add_(grads, pulls, alpha=weight)
