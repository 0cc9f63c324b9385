"""Closed forms of the KL between two laws, by entry; elementwise, so that they work on shards."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def normal_kl(mean: Tensor, std: Tensor, prior_mean: Tensor, prior_std: float) -> Tensor:
    """KL(N(mean, std^2) || N(prior_mean, prior_std^2)), by entry."""
    quadratic = (std.square() + (mean - prior_mean).square()) / (2 * prior_std**2)
    return math.log(prior_std) - std.log() + quadratic - 0.5


def cauchy_kl(mean: Tensor, scale: Tensor, prior_mean: Tensor, prior_scale: float) -> Tensor:
    """KL of two Cauchys, `ln(((g1 + g2)^2 + (x1 - x2)^2) / (4 g1 g2))` (Chyzak, Nielsen 2019)."""
    distance = (scale + prior_scale).square() + (mean - prior_mean).square()
    return distance.log() - (4 * prior_scale * scale).log()


def pairwise_terms(terms: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """`T_ij = KL_i - D_ij` with Bhattacharyya distances D: sums over tensors stay a bound.

    `KL(mixture) <= mean_i ln mean_j exp(sum T_ij)` (Kolchinsky and Tracey 2017; divided by 4, not
    by 16 as in one public code, T2.4).
    """
    # By ratios: squares of the scales of a start without noise would be 0.
    gap = (mean[:, None] - mean[None]) / torch.hypot(std[:, None], std[None])  # [K, K, C]
    ratio = std[:, None] / std[None]
    distance = gap.square() / 4 + 0.5 * ((ratio + 1 / ratio) / 2).log()
    return terms[:, None] - distance.sum(-1)


def reduce_pairwise(terms: Tensor) -> Tensor:
    """From the summed terms [K, K] to the bound."""
    return (torch.logsumexp(terms, 1) - math.log(terms.shape[1])).mean()
