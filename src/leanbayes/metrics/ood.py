"""How well a score tells out-of-distribution (OOD) inputs from those of the distribution.

OOD is the positive class, and a higher score means more OOD: entropy and mutual information as
they are, a confidence negated. Own code, since torchmetrics 1.9 puts scores outside [0, 1] through
a sigmoid, which turns all high ones into ties, and divides in float32.
"""

import torch
from torch import Tensor

from leanbayes.metrics.check import as_scores

__all__ = ["auroc", "average_precision", "fpr95"]


def auroc(scores_in: Tensor, scores_out: Tensor) -> Tensor:
    """Area under the ROC curve, ``P(s_out > s_in) + P(s_out = s_in) / 2``.

    Counts by sorting, ``O(n log n)``; 0.5 when all scores are equal.

    Args:
        scores_in: scores of in-distribution examples, any shape.
        scores_out: scores of OOD examples, any shape.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> auroc(torch.tensor([0.1, 0.4]), torch.tensor([0.4, 0.8])).item()
        0.875
    """
    inside, outside = as_scores(scores_in, "scores_in"), as_scores(scores_out, "scores_out")
    ranked = inside.sort().values
    below = torch.searchsorted(ranked, outside)
    up_to = torch.searchsorted(ranked, outside, right=True)
    return (below + up_to).to(torch.float64).mean() / (2 * len(inside))


def average_precision(scores_in: Tensor, scores_out: Tensor) -> Tensor:
    """Average precision, ``sum_k (R_k - R_(k-1)) P_k`` over the distinct thresholds.

    Each OOD example adds ``1 / n_out`` of recall, so that it is the mean over OOD examples of the
    precision at their own score; equal scores share one threshold. No interpolation.

    Args:
        scores_in: scores of in-distribution examples, any shape.
        scores_out: scores of OOD examples, any shape.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> average_precision(torch.tensor([0.1, 0.6]), torch.tensor([0.4, 0.8])).item()
        0.8333333333333333
    """
    inside, outside = as_scores(scores_in, "scores_in"), as_scores(scores_out, "scores_out")
    hits, false_alarms = _at_least(outside, outside), _at_least(inside, outside)
    return (hits / (hits + false_alarms)).mean()


def fpr95(scores_in: Tensor, scores_out: Tensor) -> Tensor:
    """False positive rate at the highest threshold that finds 95 % of the OOD examples.

    ``mean_i 1[s_in_i >= t]`` with ``t`` the largest score for which
    ``mean_j 1[s_out_j >= t] >= 0.95``.

    Args:
        scores_in: scores of in-distribution examples, any shape.
        scores_out: scores of OOD examples, any shape.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> fpr95(torch.tensor([0.1, 0.2, 0.3, 0.6]), torch.tensor([0.5, 0.8])).item()
        0.25
    """
    inside, outside = as_scores(scores_in, "scores_in"), as_scores(scores_out, "scores_out")
    # In integers: 0.95 * n in floats may round past a whole number.
    needed = (95 * len(outside) + 99) // 100
    threshold = outside.sort(descending=True).values[needed - 1]
    return (inside >= threshold).to(torch.float64).mean()


def _at_least(scores: Tensor, thresholds: Tensor) -> Tensor:
    """How many of ``scores`` reach each threshold, in float64."""
    below = torch.searchsorted(scores.sort().values, thresholds)
    return (len(scores) - below).to(torch.float64)
