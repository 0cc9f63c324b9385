"""Figures of labels by pixel, added up batch by batch: memory for counts, not for probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

import leanbayes as lb
from leanbayes.errors import DataError
from leanbayes.metrics import confusion, iou_of_pairs
from leanbayes.prediction import Classification

IOU = "iou_"  # begins the names of figures of single classes
BINS = 15  # of the calibration error, as in `lb.metrics.ece`
_SHIFT = 11  # bits of a float32 that a bin of uncertainty leaves out
_CELLS = 2 ** (31 - _SHIFT)


class DenseTally:
    """Counts and sums of dense predictions [B, C, ...] with labels [B, ...].

    Accuracy and `|both| / |either|` of a class come from the confusion matrix, NLL and Brier score
    from sums, the ECE from the sums of its 15 bins: all of them are exact, up to rounding.

    `error_auroc`, how well the total uncertainty tells wrong elements from right ones, comes from a
    histogram of each kind. A bin holds the uncertainties whose float32 agree in sign, exponent and
    the first 12 bits after the point, so it is at most 1/4096 of its values wide, near 0 too, where
    most pixels of a trained network are. Elements of one bin count as equal; the area is off by at
    most half the share of pairs (right, wrong) in a common bin.

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
        self.uncertainty = torch.zeros(2, _CELLS, dtype=torch.long)

    def add(self, found: Classification, target: Tensor) -> None:
        """Count the elements of a batch that have a label."""
        _check_alike(found.label, target)
        target = target.to(found.probs.device)
        known = target != self.ignore_index
        if not bool(known.any()):
            return
        labels, probs = target[known], found.probs.movedim(1, -1)[known]
        check_labels(labels, probs.shape[1])
        for score in self.scores.values():
            score.update(probs, labels)
        self.pairs += confusion(probs.argmax(1), labels, len(self.pairs)).cpu()
        self._add_uncertainty(found.total[known], probs.argmax(1) == labels)

    def _add_uncertainty(self, total: Tensor, right: Tensor) -> None:
        # The bits of positive floats are in the order of their values; abs makes a 0 of -0.
        cell = total.float().clamp_min(0).abs().view(torch.int32).long() >> _SHIFT
        for row, kind in zip(self.uncertainty, (right, ~right), strict=True):
            row += torch.bincount(cell[kind], minlength=_CELLS).cpu()

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
        right, wrong = self.uncertainty.double()
        if not right.any() or not wrong.any():
            return {}
        below = right.cumsum(0) - right / 2  # of a bin itself one half
        return {"error_auroc": float((below * wrong).sum() / (right.sum() * wrong.sum()))}

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


def check_labels(labels: Tensor, classes: int) -> None:
    """Refuse a label that is no class of the network."""
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise DataError(f"label {int(wrong[0])} is outside the {classes} classes of the network")


def _check_alike(label: Tensor, target: Tensor) -> None:
    if label.shape != target.shape:
        found, wanted = ("x".join(map(str, s.shape[1:])) for s in (label, target))
        raise DataError(f"the network labels {found} elements, the data have {wanted}")
