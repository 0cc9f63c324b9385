"""Metrics of many batches and processes that rank examples: one float and one bit an example.

Used as those of `leanbayes.metrics.accumulate`; the values are the same bits in one go and in
batches, but for sums whose order follows that of the examples.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from leanbayes.metrics.accumulate import Accumulator
from leanbayes.metrics.calibration import adaptive_error, confidence_and_hit
from leanbayes.metrics.check import as_scores, check_count, check_same_shape, refuse
from leanbayes.metrics.ood import auroc, average_precision, fpr95
from leanbayes.metrics.selective import at_coverage, by_bucket, kept_accuracy, uncertainty_and_hit

__all__ = ["AURC", "AdaptiveECE", "Detection"]

DETECTIONS = (auroc, average_precision, fpr95)


class Pool(Accumulator):
    """State that grows: a score and a mark of every example."""

    def __init__(self) -> None:
        self._scores: list[Tensor] = []
        self._marks: list[Tensor] = []

    def settings(self) -> tuple[Any, ...]:
        """None."""
        return ()

    def merge(self, other: Self) -> None:
        """Add what another accumulator of the same settings has seen."""
        self.check_alike(other)
        self._scores += other._scores
        self._marks += other._marks

    def add(self, scores: Tensor, marks: Tensor) -> None:
        """Add the examples of a batch, both ``[N]``."""
        self._scores.append(scores.to("cpu", torch.float64))
        self._marks.append(marks.to("cpu", torch.bool))

    def found(self) -> tuple[Tensor, Tensor]:
        """All scores and marks, ``[N]``; refused where nothing was seen."""
        if not self._scores:
            refuse(f"{type(self).__name__} has seen no example", "one or more", "update(...) first")
        self._scores, self._marks = [torch.cat(self._scores)], [torch.cat(self._marks)]
        return self._scores[0], self._marks[0]


class Detection(Pool):
    """`auroc`, `average_precision` or `fpr95` in batches.

    Args:
        metric: one of the three.

    Example:
        >>> area = Detection(auroc)
        >>> area.update(torch.tensor([0.1, 0.4]), out=False)
        >>> area.update(torch.tensor([0.4, 0.8]), out=True)
        >>> area.value().item()
        0.875
    """

    def __init__(self, metric: Callable[[Tensor, Tensor], Tensor] = auroc) -> None:
        super().__init__()
        if metric not in DETECTIONS:
            names = ", ".join(sorted(f.__name__ for f in DETECTIONS))
            found = f"metric = {getattr(metric, '__name__', metric)}"
            refuse(found, f"one of {names}", "Detection(auroc)")
        self.metric = metric

    def settings(self) -> tuple[Any, ...]:
        """Name of the metric."""
        return (self.metric.__name__,)

    def update(self, scores: Tensor, out: bool | Tensor) -> None:
        """Add scores of any shape; ``out`` is True for those that are out of the distribution."""
        marks = torch.as_tensor(out, device=scores.device)
        if marks.dtype != torch.bool:
            refuse(f"out has dtype {marks.dtype}", "bool", "out=labels == 1, or out=True")
        if marks.ndim == 0:
            marks = marks.expand(scores.shape)
        check_same_shape(scores, "scores", out=marks)
        self.add(as_scores(scores, "scores"), marks.reshape(-1))

    def value(self) -> Tensor:
        """The metric of all scores."""
        scores, out = self.found()
        return self.metric(scores[~out], scores[out])


class AdaptiveECE(Pool):
    """`adaptive_ece` in batches.

    Args:
        bins: of equally many examples, counted over all batches.
    """

    def __init__(self, bins: int = 15) -> None:
        super().__init__()
        check_count("bins", bins, low=1)
        self.bins = bins

    def settings(self) -> tuple[Any, ...]:
        """Bins."""
        return (self.bins,)

    def update(self, probs: Tensor, target: Tensor) -> None:
        """Add a batch of probabilities ``[B, C, ...]`` and classes ``[B, ...]``."""
        self.add(*confidence_and_hit(probs, target))

    def value(self) -> Tensor:
        """The calibration error in bins of equally many examples."""
        confidence, right = self.found()
        return adaptive_error(confidence, right.to(torch.float64), self.bins)


class AURC(Pool):
    """`aurc` in batches, with the other figures of rejection.

    Example:
        >>> area = AURC()
        >>> area.update(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), torch.tensor([1, 0]))
        >>> area.update(torch.tensor([[0.75, 0.25]]), torch.tensor([0]))
        >>> round(area.value().item(), 4), area.accuracy_at(0.5).item()
        (0.1111, 1.0)
    """

    def update(self, probs: Tensor, target: Tensor, uncertainty: Tensor | None = None) -> None:
        """Add a batch; ``uncertainty`` is the entropy of ``probs`` by default."""
        self.add(*uncertainty_and_hit(probs, target, uncertainty))

    def curve(self) -> Tensor:
        """`rejection_curve`, ``[N]``."""
        uncertainty, right = self.found()
        return kept_accuracy(uncertainty, right.to(torch.float64))

    def accuracy_at(self, coverage: float) -> Tensor:
        """`accuracy_at_coverage`."""
        return at_coverage(self.curve(), coverage)

    def buckets(self, buckets: int = 10) -> Tensor:
        """`bucket_accuracy`."""
        uncertainty, right = self.found()
        return by_bucket(uncertainty, right.to(torch.float64), buckets)

    def value(self) -> Tensor:
        """The area under the risk-coverage curve."""
        return (1 - self.curve()).mean()
