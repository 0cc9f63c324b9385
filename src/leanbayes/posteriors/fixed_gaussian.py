"""Gaussians whose scales are measured on data after training, never learnt by gradient."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from leanbayes.forms import Form, PerDraw, Shared
from leanbayes.linearise import moved
from leanbayes.noise import NoiseSource
from leanbayes.plan import Drawn, Granularity, Scope
from leanbayes.posteriors.base import WithoutKL


class Measured(WithoutKL):
    """A law around the trained parameter that `lb.fit_posterior` fills in.

    Scales are frozen Parameters, not buffers: they shard and move along with the parameter.
    """

    granularity: Granularity = "batch"

    @abstractmethod
    def is_placeholder(self, std: float) -> bool:
        """True while every entry still has the standard deviation that it was made with."""


class FixedGaussian(Measured):
    """`w = base + std * noise` with independent entries and a stored standard deviation.

    Args:
        base: The parameter; only its shape, type and device are read.
        std: Standard deviation of every entry until one is measured.
        fixed_row: A row without noise (the padding row of an embedding).
        linear: The network is linear in `std * noise` (`leanbayes.linearise`).
    """

    def __init__(
        self,
        base: Tensor,
        *,
        std: float = 0.0,
        fixed_row: int | None = None,
        linear: bool = False,
    ) -> None:
        super().__init__()
        self.fixed_row, self.linear = fixed_row, linear
        self.std = frozen(torch.empty_like(base))
        self.set_std(torch.full_like(base, std))

    def set_std(self, std: Tensor) -> None:
        """Store a standard deviation for every entry."""
        with torch.no_grad():
            self.std.copy_(std)
            if self.fixed_row is not None:
                self.std[self.fixed_row] = 0

    def is_placeholder(self, std: float) -> bool:
        """True while nothing has been measured; a row without noise has none in any case."""
        untouched = torch.full_like(self.std, std)
        if self.fixed_row is not None:
            untouched[self.fixed_row] = 0
        return torch.equal(self.std, untouched)

    def noise(self, base: Tensor, draws: int, source: NoiseSource) -> Tensor:
        """Standard normal numbers, [draws, *base.shape]."""
        return source.normal(self.key, draws, base.shape, base)

    def draw(self, base: Tensor, noise: Tensor, component: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """`base + std * noise`, [draws, *base.shape]."""
        return torch.addcmul(base, self.std, noise)

    def realise(self, base: Tensor, drawn: Drawn, scope: Scope) -> Form:
        """As for any law; in a linearised pass draws are changes of the base."""
        if not self.linear:
            return super().realise(base, drawn, scope)
        changes = self.std * drawn.values.to(base.dtype)
        one = len(changes) == 1
        return Shared(moved(base, changes[0])) if one else PerDraw(moved(base, changes))

    def spread(self, base: Tensor) -> Tensor:  # noqa: ARG002
        """The stored one."""
        return self.std


def frozen(value: Tensor) -> nn.Parameter:
    """A parameter that no optimiser moves."""
    return nn.Parameter(value.detach(), requires_grad=False)
