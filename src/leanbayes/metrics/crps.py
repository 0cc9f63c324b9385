"""Continuous ranked probability score (CRPS), ``int (F(z) - 1[z >= target])^2 dz``; less is better.

It equals ``E|X - target| - E|X - X'| / 2`` for independent ``X, X' ~ F``, is in the units of the
target, and is the absolute error where ``F`` is a point. Own code: torchmetrics has no Gaussian
form, and that of samples refuses ``S = 1`` and holds ``S^2 B`` differences.

Shapes: ``S`` samples, ``B`` batch, ``T`` outputs. Every element counts alike.
"""

import math

import torch
from torch import Tensor

from leanbayes.metrics.check import as_finite, as_variance, check_mixture, check_same_shape

__all__ = ["crps_gaussian", "crps_mixture", "crps_samples"]


def crps_gaussian(mean: Tensor, target: Tensor, noise_variance: float | Tensor) -> Tensor:
    """CRPS of Gaussians, ``mean s (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi))``.

    ``z = (target - mean) / s`` with ``s^2`` the variance (Gneiting & Raftery 2007, eq. 21).

    Args:
        mean: ``[B, T]``, or any shape: predictive means.
        target: the same shape.
        noise_variance: positive, that of the prediction; a number, or what broadcasts to ``mean``.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> round(crps_gaussian(torch.zeros(3), torch.zeros(3), 1.0).item(), 4)
        0.2337
    """
    check_same_shape(target, "target", mean=mean)
    return crps_mixture(mean.unsqueeze(0), target, noise_variance)


def crps_mixture(means: Tensor, target: Tensor, noise_variance: float | Tensor) -> Tensor:
    """CRPS of the equal mixture of the samples' Gaussians (Grimit et al. 2006).

    ``mean_s A(target - m_s, v_s) - mean_st A(m_s - m_t, v_s + v_t) / 2`` with ``A(m, v)`` the mean
    of ``|X|`` for ``X ~ N(m, v)``. Cost: ``S^2 / 2`` of them an element, memory for ``S``.

    Args:
        means: ``[S, B, T]``, or ``[S, ...]``: one mean a sample.
        target: ``[B, T]``, or ``[...]``: the shape of ``means`` without ``S``.
        noise_variance: positive; a number, or a tensor that broadcasts to ``means``.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> means, target = torch.tensor([[-1.0], [1.0]]), torch.zeros(1)
        >>> round(crps_mixture(means, target, 1e-12).item(), 4)
        0.5
    """
    check_mixture(means, target)
    variance = as_variance(noise_variance, means).expand(means.shape)
    means, target = as_finite(means, "means"), as_finite(target, "target")
    error = _mean_size(target - means, variance).mean()
    spread = torch.zeros_like(error)
    for s in range(len(means)):  # every pair once: s with itself by half, and with those after it
        sizes = _mean_size(means[s] - means[s:], variance[s] + variance[s:])
        sizes = sizes.reshape(len(sizes), -1).mean(dim=1)
        spread += sizes.sum() - sizes[0] / 2
    return error - spread / len(means) ** 2


def crps_samples(samples: Tensor, target: Tensor) -> Tensor:
    """CRPS of the empirical distribution of samples.

    ``mean_s |x_s - target| - sum_st |x_s - x_t| / (2 S^2)``, the double sum from the sorted
    samples, ``O(S log S)``.

    Args:
        samples: ``[S, B, T]``, or ``[S, ...]``: draws of the target itself, with its noise.
        target: ``[B, T]``, or ``[...]``: the shape of ``samples`` without ``S``.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> crps_samples(torch.tensor([[-1.0], [1.0]]), torch.zeros(1)).item()
        0.5
    """
    check_mixture(samples, target, "samples")
    samples, target = as_finite(samples, "samples"), as_finite(target, "target")
    count = len(samples)
    # Differences from the target: far from 0 the weighted sum below would cancel.
    ranked = (samples - target).sort(dim=0).values.reshape(count, -1)
    weight = 2 * torch.arange(count, dtype=torch.float64, device=ranked.device) - (count - 1)
    return ranked.abs().mean() - (weight @ ranked).mean() / count**2


def _mean_size(mean: Tensor, variance: Tensor) -> Tensor:
    """``E|X|`` of ``X ~ N(mean, variance)``: ``m (2 Phi(m/s) - 1) + 2 s phi(m/s)``."""
    std = variance.sqrt()
    z = mean / std
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    # erf and not 2 Phi - 1, which loses digits around 0
    return mean * torch.erf(z / math.sqrt(2)) + 2 * std * density
