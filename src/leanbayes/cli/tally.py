"""Figures of labels by pixel, added up batch by batch: memory for counts, not for probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

import leanbayes as lb
from leanbayes.errors import DataError
from leanbayes.evaluation.dense import IOU, CoarseRanks
from leanbayes.evaluation.scores import check_labels
from leanbayes.metrics import confusion, iou_of_pairs
from leanbayes.prediction import Classification, is_label

BINS = 15  # of the calibration error, as in `lb.metrics.ece`


class DenseTally:
    """Counts and sums of dense predictions [B, C, ...] with labels [B, ...].

    Accuracy and `|both| / |either|` of a class come from the confusion matrix, NLL and Brier score
    from sums, the ECE from the sums of its 15 bins: all of them are exact, up to rounding.

    `error_auroc`, how well the total uncertainty tells wrong elements from right ones, comes from a
    histogram of each kind (`CoarseRanks`).

    Memory: C^2 + 2^21 whole numbers (16 MB), however many elements there are.

    Args:
        classes: Of the network.
        ignore_index: The label that means "no label".
        names: Of the classes; without one a class goes by its number.
    """

    def __init__(self, classes: int, ignore_index: int, names: Sequence[str] = ()) -> None:
        self.ignore_index = ignore_index
        self.names = names if len(names) == classes else [str(k) for k in range(classes)]
        self.pairs = torch.zeros(classes, classes, dtype=torch.long)
        self.scores: dict[str, lb.metrics.Accumulator] = {
            "nll": lb.metrics.Average(lb.metrics.nll),
            "ece": lb.metrics.ECE(BINS),
            "brier": lb.metrics.Average(lb.metrics.brier),
        }
        self.ranks = CoarseRanks()

    def add(self, found: Classification, target: Tensor) -> None:
        """Count the elements of a batch that have a label."""
        _check_alike(found.label, target)
        target = target.to(found.probs.device)
        known = is_label(target, self.ignore_index)
        if not bool(known.any()):
            return
        labels, probs = target[known], found.probs.movedim(1, -1)[known]
        check_labels(labels, probs.shape[1])
        for score in self.scores.values():
            score.update(probs, labels)
        self.pairs += confusion(probs.argmax(1), labels, len(self.pairs)).cpu()
        self.ranks.update(found.total[known], probs.argmax(1) == labels)

    def figures(self) -> dict[str, float]:
        """Figures of all that was added; classes by their names.

        Raises:
            DataError: No element had a label.
        """
        count = int(self.pairs.sum())
        if count == 0:
            raise DataError(f"no element has a label: all of them are {self.ignore_index}")
        return {
            "accuracy": int(self.pairs.diag().sum()) / count,
            **{name: float(score.value()) for name, score in self.scores.items()},
            **self._errors_found(),
            **self._overlaps(),
        }

    def _errors_found(self) -> dict[str, float]:
        area = float(self.ranks.value())
        return {} if math.isnan(area) else {"error_auroc": area}

    def _overlaps(self) -> dict[str, float]:
        overlaps = class_ious(self.pairs)
        each = {f"{IOU}{self.names[k]}": overlap for k, overlap in overlaps.items()}
        return {"mean_iou": sum(overlaps.values()) / len(overlaps), **each}


def class_ious(pairs: Tensor) -> dict[int, float]:
    """`|both| / |either|` of every class that occurs, from the confusion matrix.

    Example:
        >>> class_ious(torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 0]]))
        {0: 0.5, 1: 0.5}
    """
    overlaps = enumerate(iou_of_pairs(pairs).tolist())
    return {k: overlap for k, overlap in overlaps if not math.isnan(overlap)}


def _check_alike(label: Tensor, target: Tensor) -> None:
    if label.shape != target.shape:
        found, wanted = ("x".join(map(str, s.shape[1:])) for s in (label, target))
        raise DataError(f"the network labels {found} elements, the data have {wanted}")
