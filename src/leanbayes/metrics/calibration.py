"""Calibration: does a confidence of 80 % mean right in 80 % of the cases?

Own code, since torchmetrics 1.9 bins are left-closed and it takes a softmax of what it guesses to
be logits; it has no adaptive and no class-wise form. Shapes: ``B`` batch, ``C`` classes.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from leanbayes.metrics.check import as_rows, check_count, refuse

__all__ = ["Reliability", "adaptive_ece", "classwise_ece", "ece", "mce", "reliability"]


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

    @classmethod
    def of_sums(cls, sums: Tensor) -> Self:
        """From ``[bins, 3]``: count, summed confidence and right predictions of every bin."""
        count, total, hits = sums.unbind(dim=1)
        return cls(count=count.long(), confidence=total / count, accuracy=hits / count)

    def ece(self, min_count: int = 0) -> Tensor:
        """The expected calibration error of the diagram; see `ece`."""
        keep = self._kept(min_count)
        return (self.count * self._gap())[keep].sum() / self.count.sum()

    def mce(self, min_count: int = 0) -> Tensor:
        """The maximum calibration error of the diagram; see `mce`."""
        return self._gap()[self._kept(min_count)].max()

    def _gap(self) -> Tensor:
        return (self.accuracy - self.confidence).abs()

    def _kept(self, min_count: int) -> Tensor:
        check_count("min_count", min_count, low=0)
        keep = self.count > min_count
        if not keep.any():
            found = f"the fullest bin holds {int(self.count.max())} examples"
            expected = f"a bin with more than min_count={min_count}"
            refuse(found, expected, "min_count=0, or fewer bins")
        return keep


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
    return Reliability.of_sums(bin_sums(probs, target, bins))


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
    return reliability(probs, target, bins).ece(min_count)


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
    return reliability(probs, target, bins).mce(min_count)


def adaptive_ece(probs: Tensor, target: Tensor, bins: int = 15) -> Tensor:
    """ECE in bins that hold equally many examples (Nguyen & O'Connor 2015).

    An example whose confidence ``n`` of the ``N`` examples do not exceed is in bin
    ``ceil(bins n / N)``: the edges are quantiles, closed on the right, equal confidences share a
    bin, and the order of examples does not count. Without ties the sizes differ by at most 1.

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices.
        bins: how many; with fewer examples than bins each has one of its own.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> probs = torch.tensor([[0.5, 0.5], [0.75, 0.25], [0.875, 0.125], [1.0, 0.0]])
        >>> adaptive_ece(probs, torch.tensor([0, 1, 0, 0]), bins=2).item()
        0.09375
    """
    check_count("bins", bins, low=1)
    return adaptive_error(*confidence_and_hit(probs, target), bins)


def classwise_ece(probs: Tensor, target: Tensor, bins: int = 15) -> Tensor:
    """ECE of the probability of every class, right or wrong, averaged over classes.

    ``mean_c sum_m n_cm / N |frequency_cm - confidence_cm|`` where bin ``m`` of class ``c`` holds
    the examples by ``p_c``, and the frequency is that of label ``c`` (Kull et al. 2019).

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices.
        bins: of equal width, closed on the right.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> probs = torch.tensor([[0.75, 0.25], [0.75, 0.25]])
        >>> classwise_ece(probs, torch.tensor([0, 1]), bins=4).item()
        0.25
    """
    return classwise_error(class_sums(probs, target, bins))


def bin_sums(probs: Tensor, target: Tensor, bins: int) -> Tensor:
    """Sums that add up over batches: count, confidence and hits of every bin, ``[bins, 3]``."""
    check_count("bins", bins, low=1)
    confidence, right = confidence_and_hit(probs, target)
    return _summed(confidence, right, _bin_index(confidence, bins, probs.dtype), bins)


def class_sums(probs: Tensor, target: Tensor, bins: int) -> Tensor:
    """Sums that add up over batches: count, confidence and labels, ``[C, bins, 3]``."""
    check_count("bins", bins, low=1)
    rows, target = as_rows(probs, target)
    classes = torch.arange(rows.shape[1], device=rows.device)
    index = classes * bins + _bin_index(rows, bins, probs.dtype)
    labelled = (target.unsqueeze(1) == classes).to(torch.float64)
    flat = rows.flatten(), labelled.flatten(), index.flatten()
    return _summed(*flat, len(classes) * bins).reshape(len(classes), bins, 3)


def classwise_error(sums: Tensor) -> Tensor:
    """Class-wise ECE of `class_sums`."""
    count, confidence, labelled = sums.unbind(dim=2)
    # n |x / n - y / n| is |x - y|, and an empty bin adds 0
    return (labelled - confidence).abs().sum() / count.sum()


def confidence_and_hit(probs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Probability of the predicted class, and 1 where that is right, ``[N]`` in float64."""
    rows, target = as_rows(probs, target)
    confidence, predicted = rows.max(dim=1)
    return confidence, (predicted == target).to(torch.float64)


def adaptive_error(confidence: Tensor, right: Tensor, bins: int) -> Tensor:
    """Adaptive ECE of confidences ``[N]`` and hits ``[N]``."""
    up_to = torch.searchsorted(confidence.sort().values, confidence, right=True)
    index = (up_to * bins + len(confidence) - 1) // len(confidence) - 1
    _, total, hits = _summed(confidence, right, index, bins).unbind(dim=1)
    return (hits - total).abs().sum() / len(confidence)


def _summed(confidence: Tensor, right: Tensor, index: Tensor, bins: int) -> Tensor:
    values = torch.stack([torch.ones_like(right), confidence, right], dim=1)
    # index_add_ and not bincount: bincount with weights has no deterministic form on CUDA.
    return values.new_zeros(bins, 3).index_add_(0, index, values)


def _bin_index(confidence: Tensor, bins: int, dtype: torch.dtype) -> Tensor:
    inner = torch.arange(1, bins, dtype=torch.float64, device=confidence.device) / bins
    # Rounded like the probabilities, so that a float32 0.6 is on the edge 0.6 and not above it.
    edges = inner.to(dtype).to(torch.float64)
    return torch.bucketize(confidence, edges)
