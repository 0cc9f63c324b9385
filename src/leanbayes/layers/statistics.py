"""Running statistics of BatchNorm by member: those of whole networks that share one pass.

Rows of a member are normalised as if the member were alone: in training by the statistics of its
rows, which move its running statistics, and in evaluation by its running statistics.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from leanbayes import ops
from leanbayes.errors import PlanError
from leanbayes.forms import Ask, Form, PerDraw, Shared
from leanbayes.noise import NoiseSource
from leanbayes.plan import Scope
from leanbayes.posteriors.base import WithoutKL, member_index, member_of, spread_of


class Statistics(WithoutKL):
    """Running statistics of the members 1 to K - 1; member 0 has the layer's own.

    A slot without parameters, of the tensor [mean, variance] [2, C].

    Args:
        layers: The stock layers of the further members, whose statistics are copied.
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(self, layers: Sequence[_BatchNorm]) -> None:
        super().__init__()
        self.members = 1 + len(layers)
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            found = [getattr(layer, name) for layer in layers]
            has = found and found[0] is not None
            self.register_buffer(name, torch.stack(found) if has else None)

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:  # noqa: ARG002
        """None is needed: the component is the draw."""
        return base.new_zeros(draws)

    def values(self, base: Tensor) -> Tensor:
        """Mean and variance of all members, [K, 2, C]."""
        if self.running_mean is None or self.running_var is None:
            return base.expand(self.members, *base.shape)
        return torch.cat([base[None], torch.stack([self.running_mean, self.running_var], 1)])

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:
        """Those of each draw's member, [draws, 2, C]."""
        return self.values(base)[self.index(component, len(noise), noise.device)]

    def index(self, component: Tensor | None, draws: int, device: torch.device) -> Tensor:
        """The member of each draw."""
        return member_index(component, draws, self.members, device)

    def form(self, base: Tensor, scope: Scope, ask: Ask) -> Form:
        """As for any law, with a short way for a predicted sample of one member."""
        k = member_of(scope)
        if k is None or self.running_mean is None or self.running_var is None:
            return super().form(base, scope, ask)
        own = base if k == 0 else torch.stack([self.running_mean[k - 1], self.running_var[k - 1]])
        return Shared(own)

    def mean(self, base: Tensor, member: int | None = None) -> Tensor:
        """Those of a member, or their average; exact where all are equal."""
        values = self.values(base)
        return base + (values - base).mean(0) if member is None else values[member]

    def spread(self, base: Tensor) -> Tensor:
        """Over the members."""
        return spread_of(self.values(base))

    def of_member(
        self, layer: _BatchNorm, k: int, tracks: bool
    ) -> tuple[Tensor | None, Tensor | None, float]:
        """Running mean and variance of a member, to be moved, and the weight of the next batch."""
        if not tracks:
            return None, None, 0.0
        own = (layer.running_mean, layer.running_var, layer.num_batches_tracked)
        further = (self.running_mean, self.running_var, self.num_batches_tracked)
        mean, variance, batches = (_member(a, b, k) for a, b in zip(own, further, strict=True))
        batches.add_(1)
        factor = 1.0 / float(batches) if layer.momentum is None else layer.momentum
        return mean, variance, factor

    def track(self, layer: _BatchNorm, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Move the running statistics of the members that had `count` > 0 values a channel.

        As in the stock layer: `r += momentum (batch - r)` with the unbiased variance; without a
        momentum the plain average of all batches. mean and variance are [K, C].
        """
        own = (layer.running_mean, layer.running_var, layer.num_batches_tracked)
        further = (self.running_mean, self.running_var, self.num_batches_tracked)
        batch = (mean, variance * (count / (count - 1).clamp_min(1))[:, None])
        seen = count > 0
        batches = _joined(own[2], further[2]) + seen
        average = 1.0 / batches.clamp_min(1).to(mean.dtype)
        weight = (average if layer.momentum is None else layer.momentum) * seen.to(mean.dtype)
        for old, others, new in zip(own[:2], further[:2], batch, strict=True):
            values = _joined(old, others)
            moved = values + weight.to(values.dtype)[:, None] * (new.to(values.dtype) - values)
            _store(moved, old, others)
        _store(batches, own[2], further[2])


def _member(own: Tensor | None, further: Tensor | None, k: int) -> Tensor:
    found = own if k == 0 or further is None else further[k - 1]
    assert found is not None
    return found


def _joined(own: Tensor | None, further: Tensor | None) -> Tensor:
    assert own is not None
    return own[None] if further is None else torch.cat([own[None], further])


def _store(values: Tensor, own: Tensor | None, further: Tensor | None) -> None:
    assert own is not None
    own.copy_(values[0])
    if further is not None:
        further.copy_(values[1:])


def normalised(
    x: Tensor,
    form: Form | None,
    eps: float,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """`(x - mean) / sqrt(variance + eps)` by given statistics [2, C], or [D, 2, C] by draw.

    Those of one draw take an affine map with them, in one kernel.
    """
    if isinstance(form, Shared):
        mean, variance = form.value
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)
    if isinstance(form, PerDraw) and weight is None and bias is None:
        value = form.value
        scale = (value[:, 1] + eps).rsqrt()
        return ops.affine(x, PerDraw(scale), PerDraw(-value[:, 0] * scale), 1)
    raise TypeError(f"statistics cannot take the form {type(form).__name__}")


def normalised_by_batch(
    x: Tensor, layer: _BatchNorm, statistics: Statistics, scope: Scope, tracks: bool
) -> Tensor:
    """Normalise the rows of every member by their own mean and variance, and track these."""
    draws = scope.draws("row")
    index = statistics.index(scope.component("row"), draws, x.device)
    if not torch.compiler.is_compiling():
        used = torch.unique(index).tolist()
        if len(used) == 1:  # the stock kernel, on the tensors of this member
            mean, variance, factor = statistics.of_member(layer, used[0], tracks)
            return F.batch_norm(x, mean, variance, None, None, True, factor, layer.eps)
    # Squares of small differences have too few digits in half precision, so autocast stops here.
    with torch.autocast(x.device.type, enabled=False):
        rows = ops.blocks(ops.at_least_float32(x), draws)  # [D, R, C, ...]
        indicator = F.one_hot(index, statistics.members).to(rows.dtype)
        y, *moments = _by_indicator(rows, index, indicator, layer.eps)
    if scope.trace is None:  # an example may be smaller than a batch
        _check_count(moments[2])
    if tracks:
        with torch.no_grad():
            statistics.track(layer, *moments)
    return ops.rejoined(y.to(x.dtype), x.shape)


def _by_indicator(
    rows: Tensor, index: Tensor, indicator: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Normalised rows; mean and variance [K, C] and the values a channel [K] of every member.

    Sums by member are products with indicators [D, K], so that no shape depends on the members of
    the rows, which a compiled graph could not follow.
    """
    inner = [1, *range(3, rows.dim())]
    count = indicator.sum(0) * (rows[0].numel() // rows.shape[2])
    size = count.clamp_min(1)[:, None]
    mean = indicator.T @ rows.sum(inner) / size
    centred = rows - _spread(mean[index], rows)
    variance = indicator.T @ centred.square().sum(inner) / size
    y = centred * _spread((variance + eps).rsqrt()[index], rows)
    return y, mean, variance, count


def _check_count(count: Tensor) -> None:
    if not torch.compiler.is_compiling() and bool((count == 1).any()):
        raise PlanError(
            "BatchNorm cannot train on a single value a channel: a member of the ensemble got one "
            "row. Use batches of at least two rows a member, or DeepEnsemble(assign='turns')"
        )


def _spread(values: Tensor, rows: Tensor) -> Tensor:
    """[D, C] against [D, R, C, ...]."""
    return values.reshape(len(values), 1, -1, *(1,) * (rows.dim() - 3))
