"""Metrics of real-valued predictions.

Shapes: ``S`` samples, ``B`` batch, ``T`` outputs. Every element counts alike.
"""

import math

import torch
from torch import Tensor

from leanbayes.metrics.check import (
    as_finite,
    as_variance,
    check_mixture,
    check_no_nan,
    check_not_empty,
    check_same_shape,
    refuse,
)

__all__ = ["interval_coverage", "log_predictive_density", "rmse"]


def rmse(mean: Tensor, target: Tensor) -> Tensor:
    """Root mean squared error, ``sqrt(mean_bt (mean_bt - target_bt)^2)``.

    Args:
        mean: ``[B, T]``, or any shape: predictive means.
        target: the same shape.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> rmse(torch.tensor([[1.0], [2.0]]), torch.tensor([[4.0], [-1.0]])).item()
        3.0
    """
    check_not_empty(target, "target")
    check_same_shape(target, "target", mean=mean)
    mean, target = as_finite(mean, "mean"), as_finite(target, "target")
    return (mean - target).square().mean().sqrt()


def log_predictive_density(means: Tensor, target: Tensor, noise_variance: float | Tensor) -> Tensor:
    """Mean log density of the targets under the equal mixture of the samples' Gaussians.

    ``mean_bt ln (1/S sum_s N(target_bt | means_sbt, noise_variance))``, by log-sum-exp. Each
    element has a mixture of its own: this is not the joint density of the ``T`` outputs.

    Args:
        means: ``[S, B, T]``, or ``[S, ...]``: one mean a sample.
        target: ``[B, T]``, or ``[...]``: the shape of ``means`` without ``S``.
        noise_variance: positive; a number, or a tensor that broadcasts to ``means``.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> means, target = torch.zeros(5, 3, 1), torch.zeros(3, 1)
        >>> round(log_predictive_density(means, target, noise_variance=1.0).item(), 4)
        -0.9189
    """
    check_mixture(means, target)
    variance = as_variance(noise_variance, means)
    means, target = as_finite(means, "means"), as_finite(target, "target")
    log_density = -0.5 * ((target - means).square() / variance + (2 * math.pi * variance).log())
    return log_density.logsumexp(dim=0).mean() - math.log(len(means))


def interval_coverage(lower: Tensor, upper: Tensor, target: Tensor) -> Tensor:
    """Fraction of targets inside their interval, ``mean_bt 1[lower <= target <= upper]``.

    Args:
        lower: ``[B, T]``, or any shape; ``-inf`` for no bound.
        upper: the same shape, at least ``lower``; ``inf`` for no bound.
        target: the same shape.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> lower, upper = torch.zeros(4), torch.ones(4)
        >>> interval_coverage(lower, upper, torch.tensor([0.0, 0.5, 1.0, 1.5])).item()
        0.75
    """
    check_not_empty(target, "target")
    check_same_shape(target, "target", lower=lower, upper=upper)
    target = as_finite(target, "target")
    lower, upper = _as_bound(lower, "lower"), _as_bound(upper, "upper")
    crossed = int((lower > upper).sum())
    if crossed:
        found = f"lower is above upper in {crossed} of {lower.numel()} intervals"
        refuse(found, "lower <= upper", "interval_coverage(lower, upper, target), in this order")
    return ((lower <= target) & (target <= upper)).to(torch.float64).mean()


def _as_bound(values: Tensor, name: str) -> Tensor:
    check_no_nan(values, name)
    return values.detach().to(torch.float64)
