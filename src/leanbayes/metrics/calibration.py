"""Calibration: does a confidence of 80 % mean right in 80 % of the cases?

Own code, since torchmetrics 1.9 bins are left-closed and it takes a softmax of what it guesses to
be logits. Shapes: ``B`` batch, ``C`` classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from leanbayes.metrics.check import as_rows, check_count, refuse

__all__ = ["Reliability", "ece", "mce", "reliability"]


@dataclass(frozen=True, eq=False)
class Reliability:
    """The reliability diagram as numbers, one entry a bin, from low to high confidence.

    Attributes:
        count: ``[bins]`` examples in the bin, int64.
        confidence: ``[bins]`` their mean confidence, float64; NaN in an empty bin.
        accuracy: ``[bins]`` the fraction of them predicted right, float64; NaN in an empty bin.
    """

    count: Tensor
    confidence: Tensor
    accuracy: Tensor


def reliability(probs: Tensor, target: Tensor, bins: int = 15) -> Reliability:
    """Sort examples into bins of equal width by the probability of their predicted class.

    Bin ``m`` of ``M`` is ``((m-1)/M, m/M]``, closed on the right; the first holds 0 too. The
    prediction is the lowest index among equally probable classes.

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices.
        bins: how many.

    Example:
        >>> probs = torch.tensor([[0.5, 0.5], [0.75, 0.25], [1.0, 0.0]])
        >>> table = reliability(probs, torch.tensor([0, 1, 0]), bins=2)
        >>> table.count.tolist(), table.confidence.tolist(), table.accuracy.tolist()
        ([1, 2], [0.5, 0.875], [1.0, 0.5])
    """
    check_count("bins", bins, low=1)
    rows, target = as_rows(probs, target)
    confidence, predicted = rows.max(dim=1)
    index = _bin_index(confidence, bins, probs.dtype)
    right = (predicted == target).to(torch.float64)
    values = torch.stack([torch.ones_like(right), confidence, right], dim=1)
    # index_add_ and not bincount: bincount with weights has no deterministic form on CUDA.
    count, total, hits = values.new_zeros(bins, 3).index_add_(0, index, values).unbind(dim=1)
    return Reliability(count=count.long(), confidence=total / count, accuracy=hits / count)


def ece(probs: Tensor, target: Tensor, bins: int = 15, min_count: int = 0) -> Tensor:
    """Expected calibration error, ``sum_m n_m / N |accuracy_m - confidence_m|``.

    ``N`` counts all examples, those of dropped bins too, as in Ensemble Model Patching
    (appendix D.2: 20 bins, ``min_count=5``).

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices.
        bins: of equal width, closed on the right.
        min_count: bins with at most so many examples are dropped; 0 drops the empty ones.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> probs = torch.tensor([[0.5, 0.5], [0.75, 0.25], [0.75, 0.25], [1.0, 0.0]])
        >>> ece(probs, torch.tensor([0, 0, 1, 0]), bins=4).item()
        0.25
    """
    count, gap = _gaps(probs, target, bins, min_count)
    examples = target.numel()
    return (count * gap).sum() / examples


def mce(probs: Tensor, target: Tensor, bins: int = 15, min_count: int = 0) -> Tensor:
    """Maximum calibration error, ``max_m |accuracy_m - confidence_m|``.

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices.
        bins: of equal width, closed on the right.
        min_count: bins with at most so many examples are dropped; 0 drops the empty ones.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> probs = torch.tensor([[0.5, 0.5], [0.75, 0.25], [0.75, 0.25], [1.0, 0.0]])
        >>> mce(probs, torch.tensor([0, 0, 1, 0]), bins=4).item()
        0.5
        >>> mce(probs, torch.tensor([0, 0, 1, 0]), bins=4, min_count=1).item()
        0.25
    """
    _, gap = _gaps(probs, target, bins, min_count)
    return gap.max()


def _gaps(probs: Tensor, target: Tensor, bins: int, min_count: int) -> tuple[Tensor, Tensor]:
    """Count and ``|accuracy - confidence|`` of the bins which are kept."""
    check_count("min_count", min_count, low=0)
    table = reliability(probs, target, bins)
    keep = table.count > min_count
    if not keep.any():
        found = f"the fullest bin holds {int(table.count.max())} examples"
        refuse(found, f"a bin with more than min_count={min_count}", "min_count=0, or fewer bins")
    return table.count[keep], (table.accuracy - table.confidence).abs()[keep]


def _bin_index(confidence: Tensor, bins: int, dtype: torch.dtype) -> Tensor:
    inner = torch.arange(1, bins, dtype=torch.float64, device=confidence.device) / bins
    # Rounded like the probabilities, so that a float32 0.6 is on the edge 0.6 and not above it.
    edges = inner.to(dtype).to(torch.float64)
    return torch.bucketize(confidence, edges)
