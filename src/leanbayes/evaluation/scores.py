"""Scores of a split, added up batch by batch and over processes; never all probabilities.

A score takes predictions and targets (`add`), takes over what another process has seen (`merge`),
and gives `figures` and `curves` as plain data. Binned figures and means keep sums; figures that
rank rows keep a number a row.
"""

from __future__ import annotations

import math
from typing import Any, Self

from torch import Tensor

from leanbayes import metrics
from leanbayes.errors import DataError
from leanbayes.evaluation.curves import COVERAGES, rejection, reliability
from leanbayes.evaluation.disagreement import Disagreement
from leanbayes.evaluation.rows import Rows, histogram, means
from leanbayes.metrics import Accumulator
from leanbayes.metrics.selective import at_coverage
from leanbayes.prediction import (
    BinaryClassification,
    Classification,
    Prediction,
    fits,
    is_label,
)

BINS = 15
TOP = 5


class Score:
    """Rows without targets: uncertainty alone; the base of the others.

    Args:
        classes: Of the network; 0 in regression, which has no histogram.
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.rows = Rows()
        self.parts: dict[str, Accumulator] = {}

    def add(self, found: Prediction, target: Tensor | None) -> None:  # noqa: ARG002
        """Take a batch."""
        self.rows.update(found)

    def merge(self, other: Self) -> None:
        """Take over what was seen of the rows that come next."""
        self.rows.merge(other.rows)
        for name, part in self.parts.items():
            part.merge(other.parts[name])

    def figures(self) -> dict[str, float]:
        """By name."""
        return means(self.rows.table())

    def curves(self) -> dict[str, Any]:
        """By name."""
        if self.classes < 2:
            return {}
        return {"histogram": histogram(self.rows.table(), self.classes)}


class LabelScore(Score):
    """One label a row or element, of few enough elements to keep a number of each.

    Args:
        classes: Of the network.
        ignore_index: The label that means "no label".
        distinct: Draws of the method after which they repeat; 0 if none do.
    """

    def __init__(self, classes: int, ignore_index: int, distinct: int = 0) -> None:
        super().__init__(classes)
        self.ignore_index = ignore_index
        self.ece, self.ranks = metrics.ECE(BINS), metrics.AURC()
        self.adaptive, self.classwise = metrics.AdaptiveECE(BINS), metrics.ClasswiseECE(BINS)
        self.parts |= {
            "accuracy": metrics.Average(metrics.accuracy),
            "nll": metrics.Average(metrics.nll),
            "ece": self.ece,
            "brier": metrics.Average(metrics.brier),
            "adaptive_ece": self.adaptive,
            "classwise_ece": self.classwise,
            "aurc": self.ranks,
        }
        if classes > TOP:
            self.parts["accuracy_top5"] = metrics.Average(metrics.accuracy, top=TOP)
        self.positives = metrics.Detection(metrics.average_precision)
        self.draws = Disagreement(distinct)

    def add(self, found: Prediction, target: Tensor | None) -> None:
        """Take a batch; elements without a label count as rows only."""
        super().add(found, target)
        probs, labels, total = elements(found, target, self.ignore_index)
        self.draws.add(found, target, self.ignore_index)
        if not len(labels):
            return
        for part in self.parts.values():
            part.update(*((probs, labels, total) if part is self.ranks else (probs, labels)))
        if self.classes == 2:
            self.positives.update(probs[:, 1], out=labels == 1)

    def merge(self, other: Self) -> None:
        """Take over what was seen of the rows that come next."""
        super().merge(other)
        self.positives.merge(other.positives)
        self.draws.merge(other.draws)

    def figures(self) -> dict[str, float]:
        """Those of labels, calibration, uncertainty and rejection."""
        if self.ece.sums is None:
            raise DataError(f"no element has a label: all of them are {self.ignore_index}")
        found = {name: float(part.value()) for name, part in self.parts.items()}
        found["mce"] = float(self.ece.table().mce())
        found |= super().figures() | self._ranked() | self._two_classes()
        return found | self.draws.figures()

    def _ranked(self) -> dict[str, float]:
        uncertainty, right = self.ranks.found()
        curve = self.ranks.curve()
        found = {f"accuracy_at_{c:.0%}"[:-1]: float(at_coverage(curve, c)) for c in COVERAGES}
        sides = {"total_right": uncertainty[right], "total_wrong": uncertainty[~right]}
        found |= {name: float(values.mean()) for name, values in sides.items() if len(values)}
        return found | errors_found(uncertainty, right)

    def _two_classes(self) -> dict[str, float]:
        """Area under precision and recall of the second class, where both occur."""
        if self.classes != 2:
            return {}
        marks = self.positives.found()[1]
        both = bool(marks.any()) and not bool(marks.all())
        return {"auc_pr": float(self.positives.value())} if both else {}

    def curves(self) -> dict[str, Any]:
        """Reliability diagram, accuracy after rejection, histograms of uncertainty."""
        found = {"reliability": reliability(self.ece.table())}
        return {**found, "rejection": rejection(self.ranks.curve()), **super().curves()}


def errors_found(uncertainty: Tensor, right: Tensor) -> dict[str, float]:
    """AUROC of wrong elements against right ones by their uncertainty, where both occur."""
    if bool(right.all()) or not bool(right.any()):
        return {}
    return {"error_auroc": float(metrics.auroc(uncertainty[right], uncertainty[~right]))}


def elements(
    found: Prediction, target: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities [N, C], labels [N] and total uncertainty [N] of all elements with a label."""
    assert isinstance(found, (Classification, BinaryClassification))
    labels, total = _fitted(target, found.total), found.total
    probs = found.both if isinstance(found, BinaryClassification) else found.probs.movedim(1, -1)
    known = is_label(labels, ignore_index)
    chosen, own = probs[known], labels[known]
    check_labels(own, probs.shape[-1])
    return chosen, own, total[known]


def check_labels(labels: Tensor, classes: int) -> None:
    """Refuse a label that is no class of the network."""
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise DataError(f"label {int(wrong[0])} is outside the {classes} classes of the network")


def _fitted(target: Tensor | None, like: Tensor) -> Tensor:
    """Whole-number labels in the shape of the predictions; [B] and [B, 1] are the same thing."""
    if target is None:
        raise DataError("the split has no targets: expected (inputs, targets)")
    if not fits(target, like):
        found, wanted = ("x".join(map(str, t.shape[1:])) or "1" for t in (target, like))
        raise DataError(f"the network labels {wanted} elements a row, the data have {found}")
    if target.is_floating_point() and not bool((target == target.round()).all()):
        raise DataError("labels must be whole numbers, found fractions: is this a regression?")
    return target.reshape(like.shape).to(like.device).long()


def finite(value: float) -> float | None:
    """The number, or None where JSON has no word for it."""
    return value if math.isfinite(value) else None
