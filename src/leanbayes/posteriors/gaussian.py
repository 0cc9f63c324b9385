"""A mean-field Gaussian over one tensor and its gradient edit."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from leanbayes.forms import Ask, Form, PerDraw, Shared, by_draw
from leanbayes.noise import KeyedNoise, NoiseSource
from leanbayes.ops import at_least_float32, is_turned
from leanbayes.plan import Drawn, Scope
from leanbayes.posteriors.base import Editable, Posterior, gradient_of
from leanbayes.posteriors.estimators import Estimator, MeanFieldPosterior
from leanbayes.posteriors.shards import local_part

# exp(-60) vanishes against any weight, while its logarithm keeps KL and gradients finite.
SMALLEST_STD = math.exp(-60.0)
# Below this many numbers a call into Python costs more than the memory it saves.
SMALL = 4096


class Gaussian(MeanFieldPosterior):
    """q(w) = N(base, exp(2 log_std)), prior N(m, prior_std^2); the layer's parameter is the mean.

    `KL = sum(-log_std + ln prior_std + (exp(2 log_std) + (base - m)^2) / (2 prior_std^2) - 1/2)`.

    Args:
        base: The parameter; only its shape, type and device are read.
        prior_std: Standard deviation of the prior.
        init_log_std: Bounds of the uniform law from which `log_std` starts.
        estimator: How a pass with several draws is computed; the law is the plan's.
        fixed_row: A row without noise and without KL (the padding row of an embedding).
        prior_mean: m, which is kept as it is now; 0 if None.
    """

    closed_form = True

    def __init__(
        self,
        base: Tensor,
        *,
        prior_std: float = 1.0,
        init_log_std: tuple[float, float] = (-6.0, -5.0),
        estimator: Estimator = "auto",
        fixed_row: int | None = None,
        prior_mean: Tensor | None = None,
    ) -> None:
        super().__init__(estimator)
        self.prior_std = prior_std
        self.log_std = nn.Parameter(torch.empty_like(base).uniform_(*init_log_std))
        self.random: nn.Parameter | None = None
        if fixed_row is not None:
            # A frozen parameter, not a buffer: it must shard along with log_std.
            random = torch.ones_like(base[:, :1])
            random[fixed_row] = 0
            self.random = nn.Parameter(random, requires_grad=False)
        self.prior_mean: nn.Parameter | None = None  # frozen for the same reason
        if prior_mean is not None:
            self.prior_mean = nn.Parameter(prior_mean.detach().clone(), requires_grad=False)

    def distance(self, base: Tensor) -> Tensor:
        """From the mean of the prior, which never learns."""
        return base if self.prior_mean is None else base - self.prior_mean.detach()

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:
        """Standard normal numbers, [draws, *base.shape]."""
        return source.normal(self.key, draws, base.shape, base)

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """`base + exp(log_std) * noise`; noise of one draw may lack the leading dimension."""
        if self.random is not None:
            noise = noise * self.random
        # The compiler itself decides what backward keeps; in a few numbers it does not matter.
        if torch.compiler.is_compiling() or noise.numel() < SMALL:
            return torch.addcmul(base, self.log_std.exp(), noise)
        value: Tensor = _Reparameterise.apply(base, self.log_std, noise)  # type: ignore[no-untyped-call]
        return value

    def std(self, base: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Standard deviation of every entry, zero in the fixed row."""
        std = self.log_std.exp()
        return std if self.random is None else std * self.random

    def set_std(self, std: float) -> None:
        """Give every entry one standard deviation; 0 makes the draw equal to the mean."""
        with torch.no_grad():
            self.log_std.fill_(math.log(max(std, SMALLEST_STD)))

    def random_numbers(self, base: Tensor) -> dict[str, int]:
        """One an entry, none in the fixed row."""
        fixed = 0 if self.random is None else base[0].numel()
        return {self.key: base.numel() - fixed}

    def perturbation(self, base: Tensor, noise: Tensor) -> Tensor:
        """`exp(log_std) * noise`."""
        return self.std(base) * noise

    def form(self, base: Tensor, scope: Scope, ask: Ask) -> Form:
        """As for any mean field, with a short way for predictions."""
        source = scope.plan.noise
        if isinstance(source, KeyedNoise) and not torch.is_grad_enabled():
            return self._predicted(base, scope.draws(self.granularity), source)
        return super().form(base, scope, ask)

    def joins(self, base: Tensor, scope: Scope) -> Hashable | None:
        """Short tensors of which the pass takes one draw."""
        alone = self.random is not None or scope.draws(self.granularity) > 1
        return None if alone or base.numel() >= SMALL else self.log_std.dtype

    @classmethod
    def draw_together(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scope: Scope
    ) -> Sequence[Form]:
        """As one long vector."""
        log_std = torch.cat([q.log_std.flatten() for q, _ in sites if isinstance(q, Gaussian)])
        mean = torch.cat([base.flatten() for _, base in sites])
        noise = scope.source.normal("", 1, mean.shape, mean)[0]
        drawn = torch.addcmul(mean, log_std.exp(), noise)
        parts = torch.split(drawn, [base.numel() for _, base in sites])
        return [Shared(p.reshape(b.shape)) for p, (_, b) in zip(parts, sites, strict=True)]

    def joins_keyed(self, base: Tensor) -> Hashable | None:
        """Short vectors."""
        short = base.dim() == 1 and base.numel() < SMALL and self.random is None
        return self.log_std.dtype if short else None

    @classmethod
    def predict_together(
        cls,
        sites: Sequence[tuple[Posterior, Tensor]],
        scope: Scope,  # noqa: ARG003
        source: KeyedNoise,
    ) -> Sequence[Form]:
        """As one long vector, whose scales are found once a prediction."""
        laws = [q for q, _ in sites if isinstance(q, Gaussian)]
        key, sizes = laws[0].key, [len(base) for _, base in sites]
        mean = source.remember(f"{key}#means", lambda: torch.cat([base for _, base in sites]))
        std = source.remember(f"{key}#stds", lambda: torch.cat([q.std() for q in laws]))
        noise = source.normal_row([q.key for q in laws], sizes, mean)
        value = torch.addcmul(mean, std, noise, out=noise)
        return [Shared(part) for part in torch.split(value, sizes)]

    def _predicted(self, base: Tensor, draws: int, source: KeyedNoise) -> Form:
        """Explicit draws without a graph: one exponential for all samples, noise made in place."""
        noise = source.normal(self.key, draws, base.shape, base)
        std = source.remember(self.key, lambda: self.std(base))
        if draws == 1 and is_turned(base):
            return Shared(torch.addcmul(base, std, noise[0]))  # in the layout of the parameter
        value = torch.addcmul(base, std, noise, out=noise)
        return by_draw(value)

    def realise(self, base: Tensor, drawn: Drawn, scope: Scope) -> Form:
        """Explicit draws, or mean, perturbation and signs."""
        if drawn.sign1 is not None:
            return super().realise(base, drawn, scope)
        noise = drawn.values.to(base.dtype)
        one = noise.shape[0] == 1
        value = self.draw(base, noise[0] if one else noise)
        return Shared(value) if one else PerDraw(value)

    def kl(self, base: Tensor) -> Tensor:
        """The closed form, a scalar, in float32 at least."""
        log_std, distance = at_least_float32(self.log_std), at_least_float32(self.distance(base))
        terms = (2 * log_std).exp() + distance.square()
        if self.random is not None:
            random = at_least_float32(self.random)
            terms, log_std = terms * random, log_std * random
        fixed = 0 if self.random is None else log_std.numel() // log_std.shape[0]
        entries = log_std.numel() - fixed
        constant = entries * (math.log(self.prior_std) - 0.5)
        return terms.sum() / (2 * self.prior_std**2) - log_std.sum() + constant

    @classmethod
    def add_kl_grads(
        cls, sites: Sequence[tuple[Posterior, Tensor]], scale: float, editable: Editable
    ) -> None:
        """Closed form: `+ scale (base - m) / prior_std^2` and `+ scale (std^2 / prior_std^2 - 1)`.

        BayesAdapter's eq. (5) with the sign of a minimiser: the paper prints the gradients of
        -KL / n. A handful of kernels for the whole network.
        """
        by_prior: dict[float, list[tuple[Gaussian, Tensor]]] = defaultdict(list)
        for posterior, base in sites:
            assert isinstance(posterior, Gaussian)
            by_prior[posterior.prior_std].append((posterior, base))
        with torch.no_grad():
            for prior_std, group in by_prior.items():
                _edit_means(group, scale / prior_std**2, editable)
                _edit_scales(group, scale, prior_std, editable)


def _edit_means(group: list[tuple[Gaussian, Tensor]], scale: float, editable: Editable) -> None:
    live = [(posterior, base) for posterior, base in group if editable(base)]
    plain = [base for posterior, base in live if _is_plain(posterior)]
    if plain:
        grads = [local_part(gradient_of(base)) for base in plain]
        torch._foreach_add_(
            grads,
            [local_part(base).to(g) for base, g in zip(plain, grads, strict=True)],
            alpha=scale,
        )
    for posterior, base in live:
        if not _is_plain(posterior):
            distance, random = posterior.distance(base), posterior.random
            pull = distance if random is None else distance * random
            gradient_of(base).add_(pull, alpha=scale)


def _is_plain(posterior: Gaussian) -> bool:
    """A prior around 0 for every entry: the pull is the parameter itself."""
    return posterior.random is None and posterior.prior_mean is None


def _edit_scales(
    group: list[tuple[Gaussian, Tensor]], scale: float, prior_std: float, editable: Editable
) -> None:
    live = [posterior for posterior, _ in group if editable(posterior.log_std)]
    for part in _parts([posterior for posterior in live if posterior.random is None]):
        grads = [local_part(gradient_of(posterior.log_std)) for posterior in part]
        stds = torch._foreach_exp([local_part(posterior.log_std) for posterior in part])
        torch._foreach_addcmul_(grads, stds, stds, scale / prior_std**2)
        torch._foreach_sub_(grads, scale)
    for posterior in live:
        if posterior.random is not None:
            random = local_part(posterior.random)
            std = local_part(posterior.log_std).exp().mul_(random)
            grad = local_part(gradient_of(posterior.log_std))
            grad.addcmul_(std, std, value=scale / prior_std**2).sub_(random, alpha=scale)


def _parts(posteriors: list[Gaussian]) -> list[list[Gaussian]]:
    """All at once (few calls), but large ones alone on a CPU: temporaries stay in its cache."""
    alone = [q for q in posteriors if q.log_std.is_cpu and q.log_std.numel() > SMALL]
    together = [q for q in posteriors if not (q.log_std.is_cpu and q.log_std.numel() > SMALL)]
    return [*([q] for q in alone), *[together] * bool(together)]


class _Reparameterise(torch.autograd.Function):
    """w = mean + exp(log_std) * noise, without keeping the noise for backward.

    d log_std = sum_d g_d * (w_d - mean): the drawn w is kept by the layer's product anyway, so one
    tensor of D times the parameter's size is saved. `forward` takes the context itself: with a
    separate `setup_context` PyTorch inspects the signature anew at every call.
    """

    @staticmethod
    def forward(ctx: Any, mean: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
        value = torch.addcmul(mean, log_std.exp(), noise)
        ctx.save_for_backward(mean, value)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        mean, value = ctx.saved_tensors
        scale_grad = (value - mean).mul_(grad)
        if grad.dim() == mean.dim():  # one draw, without a leading dimension
            return grad, scale_grad, None
        return grad.sum(0), scale_grad.sum(0), None
