"""Bernoulli noise: masks of activations (dropout) and of weights (DropConnect)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from leanbayes.forms import Ask, Form, by_draw
from leanbayes.noise import NoiseSource
from leanbayes.plan import Drawn, Granularity, Scope
from leanbayes.posteriors.base import WithoutKL


class _Bernoulli(WithoutKL):
    """`z = 1 / keep` with probability `keep = 1 - rate`, else 0: expected value 1.

    It has no parameters; the prior of the weights around it is weight decay.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def extra_repr(self) -> str:
        """The rate."""
        return f"rate={self.rate}"

    def factors(self, noise: Tensor, dtype: torch.dtype) -> Tensor:
        """The factors that uniform numbers stand for."""
        keep = 1 - self.rate
        return (noise < keep).to(dtype).div_(keep or 1.0)  # at a rate of 1 all is 0, as in torch

    def realise(self, base: Tensor, drawn: Drawn, scope: Scope) -> Form:
        """One value for all rows, or one a draw; numbers are compared before they are rounded."""
        return by_draw(self.draw(base, drawn.values, scope.component(self.granularity)))


class Mask(_Bernoulli):
    """A mask of activations: an element each, or a channel each.

    Every call of a layer has a mask of its own, as in stock dropout.

    Args:
        rate: Probability of 0.
        channel: Which dimension of a row holds the channels that are dropped as a whole; None
            drops elements.
    """

    by_input: ClassVar[bool] = True

    def __init__(self, rate: float, channel: int | None = None) -> None:
        super().__init__(rate)
        self.channel = channel

    def form(self, base: Tensor, scope: Scope, ask: Ask) -> Form:
        """The mask as this pass uses it."""
        return self.realise(base, self.drawn(base, scope, ask), scope)

    def drawn(self, base: Tensor, scope: Scope, ask: Ask) -> Drawn:
        """Uniform numbers in the shape of the activations."""
        assert ask.shape is not None
        shape = ask.shape if self.channel is None else (ask.shape[self.channel],)
        key = self.noise_key if scope.plan.noise is None else self._key_of_call(scope)
        draws = scope.draws(self.granularity)
        return Drawn(scope.source.uniform(key, draws, shape, _single(base)))

    def _key_of_call(self, scope: Scope) -> str:
        key, seen = self.noise_key, scope.visited
        if seen is not None:
            while key in seen:
                key += "'"
            seen.add(key)
        return key

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:
        """Uniform numbers for activations `base`, a row of them."""
        return source.uniform(self.noise_key, draws, base.shape, _single(base))

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """The factors, [draws, *shape]."""
        return self.factors(noise, base.dtype)

    def spread(self, base: Tensor) -> Tensor:
        """`sqrt(rate / (1 - rate))`, that of every factor."""
        return base.new_full((), _factor_std(self.rate))

    def mean(self, base: Tensor, member: int | None = None) -> Tensor:  # noqa: ARG002
        """One: the mean network has no mask."""
        return base.new_ones(())


class DroppedWeight(_Bernoulli):
    """A tensor whose entries are dropped independently: `base * z`.

    Args:
        rate: Probability of 0.
        granularity: One draw a `batch` (group) or a `row`.
        fixed_row: A row that is never dropped (padding).
    """

    def __init__(
        self, rate: float, *, granularity: Granularity = "batch", fixed_row: int | None = None
    ) -> None:
        super().__init__(rate)
        self.granularity, self.fixed_row = granularity, fixed_row

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:
        """Uniform numbers, one an entry."""
        return source.uniform(self.noise_key, draws, base.shape, _single(base))

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """`base * z`, [draws, *base.shape]."""
        factors = self.factors(noise, base.dtype)
        if self.fixed_row is not None:
            factors[:, self.fixed_row] = 1
        return base * factors

    def spread(self, base: Tensor) -> Tensor:
        """`|base| sqrt(rate / (1 - rate))`, 0 in the fixed row."""
        spread = base.abs() * _factor_std(self.rate)
        if self.fixed_row is not None:
            spread[self.fixed_row] = 0
        return spread


def _factor_std(rate: float) -> float:
    """Of a factor that is `1 / keep` or 0; at a rate of 1 it is always 0."""
    return (rate / (1 - rate)) ** 0.5 if rate < 1 else 0.0


def _single(base: Tensor) -> Tensor:
    """Where to draw: in float32 whatever the type, so that a rounded network has the same masks."""
    return torch.empty((), device=base.device, dtype=torch.float32)
