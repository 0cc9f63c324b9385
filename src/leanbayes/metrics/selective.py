"""Accuracy when the most uncertain examples are rejected, that is, handed to somebody else.

Examples of equal uncertainty are rejected in random order, and the figures are expectations over
it: they do not depend on the order of the data. Own code, since torchmetrics 1.9 has none of them.
Shapes: ``B`` batch, ``C`` classes, ``N`` examples.
"""

import math

import torch
from torch import Tensor

from leanbayes.metrics.calibration import confidence_and_hit
from leanbayes.metrics.check import as_scores, check_count, check_same_shape, refuse
from leanbayes.metrics.uncertainty import entropy

__all__ = ["accuracy_at_coverage", "aurc", "bucket_accuracy", "rejection_curve"]


def rejection_curve(probs: Tensor, target: Tensor, uncertainty: Tensor | None = None) -> Tensor:
    """Accuracy on the ``n`` most certain examples, for every ``n`` from 1 to ``N``.

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices.
        uncertainty: the shape of ``target``, higher is rejected first; by default the entropy of
            ``probs``. The mutual information, or a confidence negated, are others.

    Returns:
        ``[N]``, float64; the last entry is the accuracy without rejection.

    Example:
        >>> probs = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.75, 0.25]])
        >>> rejection_curve(probs, torch.tensor([1, 0, 0])).tolist()
        [1.0, 1.0, 0.6666666666666666]
    """
    return kept_accuracy(*uncertainty_and_hit(probs, target, uncertainty))


def accuracy_at_coverage(
    probs: Tensor, target: Tensor, coverage: float, uncertainty: Tensor | None = None
) -> Tensor:
    """Accuracy on the ``ceil(coverage N)`` most certain examples.

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices.
        coverage: share of examples that are kept, above 0 and up to 1.
        uncertainty: the shape of ``target``; by default the entropy of ``probs``.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> probs = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.75, 0.25]])
        >>> accuracy_at_coverage(probs, torch.tensor([1, 0, 0]), 0.5).item()
        1.0
    """
    return at_coverage(rejection_curve(probs, target, uncertainty), coverage)


def aurc(probs: Tensor, target: Tensor, uncertainty: Tensor | None = None) -> Tensor:
    """Area under the risk-coverage curve, ``1/N sum_n (1 - accuracy of the n most certain)``.

    The error rate averaged over all coverages (Geifman et al. 2019); less is better.

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices.
        uncertainty: the shape of ``target``; by default the entropy of ``probs``.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> probs = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.75, 0.25]])
        >>> round(aurc(probs, torch.tensor([1, 0, 0])).item(), 4)
        0.1111
    """
    return (1 - rejection_curve(probs, target, uncertainty)).mean()


def bucket_accuracy(
    probs: Tensor, target: Tensor, buckets: int = 10, uncertainty: Tensor | None = None
) -> Tensor:
    """Accuracy in buckets of equally many examples, from the most certain to the least.

    Sizes differ by at most 1, the larger ones first.

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices.
        buckets: how many, up to the number of examples.
        uncertainty: the shape of ``target``; by default the entropy of ``probs``.

    Returns:
        ``[buckets]``, float64.

    Example:
        >>> probs = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.75, 0.25], [0.875, 0.125]])
        >>> bucket_accuracy(probs, torch.tensor([1, 0, 0, 0]), buckets=2).tolist()
        [1.0, 0.5]
    """
    return by_bucket(*uncertainty_and_hit(probs, target, uncertainty), buckets)


def uncertainty_and_hit(
    probs: Tensor, target: Tensor, uncertainty: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What to rank by, and 1 where the prediction is right, ``[N]`` in float64."""
    _, right = confidence_and_hit(probs, target)
    if uncertainty is None:
        return entropy(probs).flatten(), right
    check_same_shape(target, "target", uncertainty=uncertainty)
    return as_scores(uncertainty, "uncertainty"), right


def kept_accuracy(uncertainty: Tensor, right: Tensor) -> Tensor:
    """`rejection_curve` of uncertainties ``[N]`` and hits ``[N]``."""
    kept = torch.arange(1, len(right) + 1, dtype=torch.float64, device=right.device)
    return _ranked(uncertainty, right).cumsum(dim=0) / kept


def at_coverage(curve: Tensor, coverage: float) -> Tensor:
    """The entry of a `rejection_curve` where so large a share is kept."""
    if not 0 < coverage <= 1:
        refuse(f"coverage = {coverage}", "above 0 and up to 1", "coverage=0.9 to reject 10 %")
    # 0.95 * 20 in floats may round past a whole number
    return curve[max(math.ceil(coverage * len(curve) - 1e-9), 1) - 1]


def by_bucket(uncertainty: Tensor, right: Tensor, buckets: int) -> Tensor:
    """`bucket_accuracy` of uncertainties ``[N]`` and hits ``[N]``."""
    check_count("buckets", buckets, low=1, high=len(right))
    parts = _ranked(uncertainty, right).tensor_split(buckets)
    return torch.stack([part.mean() for part in parts])


def _ranked(uncertainty: Tensor, right: Tensor) -> Tensor:
    """Expected hits by rank, from certain to uncertain: the mean of those of equal uncertainty."""
    values, order = uncertainty.sort()
    group = (values[1:] != values[:-1]).cumsum(dim=0)
    group = torch.cat([group.new_zeros(1), group])
    both = torch.stack([right[order], torch.ones_like(right)], dim=1)
    hits, size = both.new_zeros(len(both), 2).index_add_(0, group, both).unbind(dim=1)
    return hits[group] / size[group]
