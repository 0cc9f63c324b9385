"""Four ways to compute passes under independent Gaussian entries around the layer's parameter.

They never change the law, which the plan fixes: one draw a group or a row.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from torch import Tensor

from leanbayes.forms import Ask, Flipped, Form, Moments
from leanbayes.noise import signs
from leanbayes.ops import few_draws
from leanbayes.plan import Drawn, Scope
from leanbayes.posteriors.base import Posterior

Estimator = Literal["auto", "shared", "exemplar", "local", "flipout"]


class MeanFieldPosterior(Posterior):
    """Independent entries `N(base, std^2)`; subclasses say where the standard deviations live."""

    def __init__(self, estimator: Estimator = "auto") -> None:
        super().__init__()
        self.estimator = estimator
        self.granularity = "batch" if estimator == "shared" else "row"

    @property
    def integrates(self) -> bool:
        """True where the estimator integrates the noise out if a layer can."""
        return self.estimator in ("auto", "local")

    def spread(self, base: Tensor) -> Tensor:
        """Standard deviation of every entry."""
        return self.std(base)

    @abstractmethod
    def std(self, base: Tensor) -> Tensor:
        """Standard deviation of every entry, in the shape of the tensor."""

    @abstractmethod
    def perturbation(self, base: Tensor, noise: Tensor) -> Tensor:
        """What one draw adds to the mean, in the shape of the tensor, from raw noise."""

    def form(self, base: Tensor, scope: Scope, ask: Ask) -> Form:
        """Moments where rows and draws coincide, else what the noise stands for."""
        if self._local(scope, ask):
            scope.visit(self.key)
            return Moments(base, self.std(base).square())
        return super().form(base, scope, ask)

    def _local(self, scope: Scope, ask: Ask) -> bool:
        # A layer that runs twice must use one draw, which integrated-out noise cannot be.
        return (
            ask.local
            and self.estimator in ("auto", "local")
            and scope.estimating
            and not scope.plan.mean
            and scope.taken(self.key) is None
        )

    def drawn(self, base: Tensor, scope: Scope, ask: Ask) -> Drawn:
        """Noise for every draw, or one noise tensor and a sign pair a draw (Flipout)."""
        draws = scope.draws(self.granularity)
        if not self._flips(draws, scope) or ask.signs is None:
            return Drawn(self.noise(base, draws, scope.source))
        size0, size1 = ask.signs
        sign0 = None if size0 is None else signs(draws, size0, base)
        return Drawn(self.noise(base, 1, scope.source)[0], sign0, signs(draws, size1, base))

    def _flips(self, draws: int, scope: Scope) -> bool:
        """True where signs save noise: they double the products, which a few draws do not."""
        if self.estimator == "exemplar" or draws == 1 or not scope.estimating:
            return False
        return self.estimator != "shared" or not few_draws(draws, scope.rows)

    def realise(self, base: Tensor, drawn: Drawn, scope: Scope) -> Form:
        """Explicit draws, or mean, perturbation and signs."""
        if drawn.sign1 is None:
            return super().realise(base, drawn, scope)
        delta = self.perturbation(base, drawn.values.to(base.dtype))
        return Flipped(base, delta, drawn.sign0, drawn.sign1)
