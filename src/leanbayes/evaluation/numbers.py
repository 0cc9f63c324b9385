"""Scores of real-valued targets."""

from __future__ import annotations

import warnings
from typing import Any, Final

import torch
from torch import Tensor

from leanbayes import metrics
from leanbayes.errors import DataError
from leanbayes.evaluation.scores import Score
from leanbayes.metrics.accumulate import Sums
from leanbayes.prediction import Prediction, Regression, fits

NOMINAL: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
COVERED = 0.95


class Coverages(Sums):
    """Share of targets in the central intervals of `NOMINAL`: a count a level.

    With F the distribution function of the sample mixture, the interval of probability q holds y
    where |2 F(y) - 1| <= q, so that one F serves all levels; conformal intervals are asked for.
    """

    def settings(self) -> tuple[Any, ...]:
        """None."""
        return ()

    def update(self, found: Regression, target: Tensor) -> None:
        """Add a batch."""
        inside = [held.sum() for held in _held(found, target)]
        self.add(torch.stack([*inside, torch.tensor(target.numel())]).double())

    def value(self) -> Tensor:
        """Shares by level."""
        *inside, count = self.found().unbind()
        return torch.stack(inside) / count


class LogDensity(Sums):
    """Mean log density of the weighted sample mixture, by element: two numbers."""

    def settings(self) -> tuple[Any, ...]:
        """None."""
        return ()

    def update(self, found: Regression, target: Tensor) -> None:
        """Add a batch."""
        value = found.log_prob(target).double()
        self.add(torch.stack([value.sum(), value.new_tensor(value.numel())]))

    def value(self) -> Tensor:
        """The mean."""
        total, count = self.found().unbind()
        return total / count


class NumberScore(Score):
    """Targets [B, T]; predictions need their samples."""

    def __init__(self) -> None:
        super().__init__(classes=0)
        self.coverages = Coverages()
        self.parts |= {
            "rmse": metrics.Average(metrics.rmse),
            "lpd": LogDensity(),
            "coverage_95": metrics.Average(metrics.interval_coverage),
            "crps": metrics.Average(metrics.crps_mixture),
            "coverages": self.coverages,
        }

    def add(self, found: Prediction, target: Tensor | None) -> None:
        """Take a batch."""
        super().add(found, target)
        assert isinstance(found, Regression)
        assert found.samples is not None
        target = numbers_of(found, target)
        means, noise = found.samples.unbind(-1)
        given = {
            "rmse": (found.mean, target),
            "lpd": (found, target),
            "coverage_95": (*found.interval(COVERED), target),
            "crps": (means, target, noise),
            "coverages": (found, target),
        }
        if not torch.allclose(found.weights, found.weights[:1]):
            del given["crps"]  # whose mixture has equal weights
        for name, arguments in given.items():
            self.parts[name].update(*arguments)

    def figures(self) -> dict[str, float]:
        """Errors, density, coverage, and the means of the variances."""
        known = {n: p for n, p in self.parts.items() if n != "coverages"}
        seen = {n: p for n, p in known.items() if isinstance(p, Sums) and p.sums is not None}
        return {name: float(part.value()) for name, part in seen.items()} | super().figures()

    def curves(self) -> dict[str, Any]:
        """Observed against nominal coverage."""
        observed = self.coverages.value().tolist()
        return {"coverage": {"nominal": list(NOMINAL), "observed": observed}}


def numbers_of(found: Regression, target: Tensor | None) -> Tensor:
    """Targets in the shape of the predictions, as float64; [B] and [B, 1] are the same thing."""
    if target is None or not fits(target, found.mean):
        raise DataError(
            f"predictions are {tuple(found.mean.shape)}, targets "
            f"{None if target is None else tuple(target.shape)}: expected one a prediction"
        )
    return target.reshape(found.mean.shape).double()


def _held(found: Regression, target: Tensor) -> list[Tensor]:
    """Which targets the interval of every level holds."""
    if found.conformal is not None:
        with warnings.catch_warnings():  # too few scores for a level: an endless interval holds all
            warnings.simplefilter("ignore")
            bounds = [found.interval(q) for q in NOMINAL]
        return [(low <= target) & (target <= high) for low, high in bounds]
    assert found.samples is not None
    means, noise = found.samples.unbind(-1)
    weights = found.weights.reshape(-1, *(1,) * found.mean.dim())
    below = (weights * torch.special.ndtr((target - means) / noise.sqrt())).sum(0)
    return [(2 * below - 1).abs() <= q for q in NOMINAL]
