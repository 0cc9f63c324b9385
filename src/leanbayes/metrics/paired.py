"""Is a difference more than chance? Student's t-test of pairs (Student 1908).

Two methods are scored on the same seeds, or on the same examples; ``d_i`` is the difference of pair
i. Under no true difference ``t = mean(d) / (std(d) / sqrt(n))`` has Student's law with ``n - 1``
degrees of freedom, exactly for normal ``d`` and for many pairs in any case. Where all ``d`` are
equal, as those of accuracies of few seeds are at times, t is infinite and says no more than their
common sign: ``p`` is then that of the sign test, ``2^(1 - n)``. Own code: torch has no incomplete
beta function, and scipy would be needed for this alone.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from leanbayes.metrics.check import as_finite, refuse

__all__ = ["Paired", "paired_test"]

STEPS, ENOUGH = 500, 1e-15  # of the continued fraction


@dataclass(frozen=True)
class Paired:
    """A mean difference, and how far from chance it is.

    Attributes:
        difference: mean over the pairs.
        standard_error: of that mean.
        p: probability of a mean at least as far from 0 by chance, to either side.
        count: pairs.
    """

    difference: float
    standard_error: float
    p: float
    count: int


def paired_test(own: Tensor, other: Tensor) -> Paired:
    """Test ``own - other`` of the same seeds or examples against 0.

    Args:
        own: ``[N]``, N of at least 2.
        other: ``[N]``, in the same order.

    Example:
        >>> found = paired_test(torch.tensor([3.0, 5.0, 7.0]), torch.tensor([2.0, 3.0, 4.0]))
        >>> found.difference, round(found.standard_error, 4), round(found.p, 4)
        (2.0, 0.5774, 0.0742)
    """
    if own.ndim != 1 or own.shape != other.shape or len(own) < 2:
        found = f"values of shapes {tuple(own.shape)} and {tuple(other.shape)}"
        refuse(found, "two of [N] with N of at least 2", "paired_test(own, other) a value a pair")
    values, count = as_finite(own, "own") - as_finite(other, "other"), len(own)
    mean, std = values.mean().item(), values.std().item()
    rounding = _rounding(own, other)
    if std <= rounding:
        return Paired(mean, 0.0, 1.0 if abs(mean) <= rounding else 2.0 ** (1 - count), count)
    error = std / math.sqrt(count)
    return Paired(mean, error, student_p(mean / error, count - 1), count)


def _rounding(own: Tensor, other: Tensor) -> float:
    """What differences that are equal may differ by."""
    kinds = [x.dtype if x.is_floating_point() else torch.float64 for x in (own, other)]
    largest = max(x.double().abs().max().item() for x in (own, other))
    return 4 * largest * max(torch.finfo(kind).eps for kind in kinds)


def student_p(t: float, freedom: int) -> float:
    """P(|T| >= |t|) of Student's law: ``I_x(freedom / 2, 1 / 2)`` at ``freedom / (freedom + t^2)``.

    Example:
        >>> round(student_p(12.706, 1), 4), round(student_p(2.0, 10**6), 4)
        (0.05, 0.0455)
    """
    return incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function ``I_x(a, b)``, by its continued fraction.

    Example:
        >>> incomplete_beta(0.25, 1, 1)
        0.25
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # there the fraction of the other tail converges
        return 1.0 - incomplete_beta(1 - x, b, a)
    logs = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logs + a * math.log(x) + b * math.log1p(-x)) / a
    return front / _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """``1 + d_1 / (1 + d_2 / (1 + ...))`` (DLMF 8.17.22), from the front (Lentz 1976)."""
    value, above, below = 1.0, 1.0, 0.0
    for step in range(1, STEPS):
        term = _term(step, x, a, b)
        below = 1 / (1 + term * below)
        above = 1 + term / above
        value *= above * below
        if abs(above * below - 1) < ENOUGH:
            break
    return value


def _term(step: int, x: float, a: float, b: float) -> float:
    m = step // 2
    if step % 2 == 0:
        return m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
    return -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
