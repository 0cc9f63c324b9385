"""Scores of labels by pixel: counts and sums, since even a number an element would be too much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from leanbayes import metrics
from leanbayes.errors import DataError
from leanbayes.evaluation.curves import reliability
from leanbayes.evaluation.scores import BINS, Score, elements
from leanbayes.metrics.accumulate import Sums
from leanbayes.prediction import Prediction

IOU = "iou_"  # begins the names of figures of single classes
_SHIFT = 11  # bits of a float32 that a bin of uncertainty leaves out
_CELLS = 2 ** (31 - _SHIFT)


class CoarseRanks(Sums):
    """How well an uncertainty tells wrong elements from right ones, from a histogram of each kind.

    A bin holds the uncertainties whose float32 agree in sign, exponent and the first 12 bits after
    the point, so it is at most 1/4096 of its values wide, near 0 too, where most pixels of a
    trained network are. Elements of one bin count as equal; the area is off by at most half the
    share of pairs (right, wrong) in a common bin. Memory: 16 MB, however many elements there are.

    Example:
        >>> ranks = CoarseRanks()
        >>> ranks.update(torch.tensor([0.1, 0.4, 0.8]), torch.tensor([True, True, False]))
        >>> ranks.value().item()
        1.0
    """

    def settings(self) -> tuple[Any, ...]:
        """None."""
        return ()

    def update(self, uncertainty: Tensor, right: Tensor) -> None:
        """Add elements [N]."""
        # The bits of positive floats are in the order of their values; abs makes a 0 of -0.
        cell = uncertainty.float().clamp_min(0).abs().view(torch.int32).long() >> _SHIFT
        counts = [torch.bincount(cell[kind], minlength=_CELLS) for kind in (right, ~right)]
        self.add(torch.stack(counts))

    def value(self) -> Tensor:
        """AUROC of wrong elements against right ones; NaN where one kind is missing."""
        right, wrong = self.found()
        below = right.cumsum(0) - right / 2  # of a bin itself one half
        area: Tensor = (below * wrong).sum() / (right.sum() * wrong.sum())
        return area


class DenseScore(Score):
    """Labels [B, ...] of dense predictions [B, C, ...].

    Args:
        classes: Of the network.
        ignore_index: The label that means "no label".
        names: Of the classes; without one a class goes by its number.
    """

    def __init__(self, classes: int, ignore_index: int, names: Sequence[str]) -> None:
        super().__init__(classes)
        self.ignore_index = ignore_index
        self.names = names if len(names) == classes else [str(k) for k in range(classes)]
        self.overlap, self.ece, self.ranks = metrics.MeanIoU(), metrics.ECE(BINS), CoarseRanks()
        self.parts |= {
            "nll": metrics.Average(metrics.nll),
            "ece": self.ece,
            "brier": metrics.Average(metrics.brier),
            "mean_iou": self.overlap,
            "error_auroc": self.ranks,
        }

    def add(self, found: Prediction, target: Tensor | None) -> None:
        """Count the elements of a batch that have a label."""
        super().add(found, target)
        probs, labels, total = elements(found, target, self.ignore_index)
        if not len(labels):
            return
        for part in self.parts.values():
            if part is self.ranks:
                part.update(total, probs.argmax(1) == labels)
            else:
                part.update(probs, labels)

    def figures(self) -> dict[str, float]:
        """Accuracy, proper scores, calibration, overlap of every class that occurs."""
        if self.ece.sums is None:
            raise DataError(f"no element has a label: all of them are {self.ignore_index}")
        pairs = self.overlap.pairs()
        found = {"accuracy": int(pairs.diag().sum()) / int(pairs.sum())}
        found |= {name: float(part.value()) for name, part in self.parts.items()}
        found |= super().figures()
        each = zip(self.names, self.overlap.each().tolist(), strict=True)
        found |= {f"{IOU}{name}": overlap for name, overlap in each}
        return {name: value for name, value in found.items() if not math.isnan(value)}

    def curves(self) -> dict[str, Any]:
        """Reliability diagram, and histograms of the mean uncertainty of images."""
        return {"reliability": reliability(self.ece.table()), **super().curves()}
