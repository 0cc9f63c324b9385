"""Figures of a model on data: predictions in batches, scored by task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import leanbayes as lb
from leanbayes.cli.card import Card
from leanbayes.data.dataset import Normalize
from leanbayes.errors import DataError
from leanbayes.model import BayesianModel
from leanbayes.prediction import BinaryClassification, Classification, Prediction, Regression

IOU = "iou_"  # begins the names of figures of single classes


@dataclass(frozen=True)
class Judge:
    """A model, and how it predicts.

    Attributes:
        card: Of the run.
        model: The run's.
        batch: Rows of a pass.
        options: Of `lb.predict`.
    """

    card: Card
    model: BayesianModel
    batch: int
    options: Mapping[str, Any]

    def predicted(self, part: Any, scale: Normalize | None) -> tuple[Prediction, Tensor]:
        """Prediction and targets of a part; inputs are brought from their scale to the run's."""
        # The density of a mixture of Gaussians needs its samples.
        keep = self.card.data.get("task") == "regression"
        options = {**self.options, "keep_samples": keep}
        found, targets = [], []
        for x, y in batches(part, self.batch):
            rows = self._rescaled(x, scale)
            found.append(lb.predict(self.model, rows, **options).to("cpu"))
            targets.append(y)
        if not found:
            raise DataError("the data hold no examples")
        return type(found[0]).cat(found), torch.cat(targets)

    def _rescaled(self, x: Tensor, scale: Normalize | None) -> Tensor:
        if tuple(x.shape[1:]) != self.card.shape:
            found, wanted = ("x".join(map(str, s)) for s in (x.shape[1:], self.card.shape))
            raise DataError(f"inputs are {found}; those of the run were {wanted}")
        own = self.card.normalize
        if scale == own or not x.is_floating_point():
            return x
        raw = x if scale is None else scale.undo(x)
        return raw if own is None else own(raw)

    def figures(self, found: Prediction, target: Tensor, ignore_index: int) -> dict[str, float]:
        """Figures of the task."""
        match found:
            case Classification():
                return _of_classes(found, target, ignore_index, self.card.classes)
            case BinaryClassification():
                return _of_two(found, target)
            case Regression():
                return _of_numbers(found, target)
            case _:
                raise TypeError(f"no figures for {type(found).__name__}")

    @staticmethod
    def told_apart(found: Prediction, foreign: Prediction) -> dict[str, float]:
        """AUROC of foreign examples against the data's own; dense outputs by their mean."""
        scores = {}
        for name in ("total", "epistemic"):
            own, others = (_by_row(getattr(p, name)) for p in (found, foreign))
            scores[f"auroc_{name}"] = float(lb.metrics.auroc(own, others))
        return scores


def batches(part: Any, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of inputs and targets, in the order of the data."""
    if isinstance(part, Dataset):
        yield from DataLoader(part, rows)
        return
    x, y = part
    for start in range(0, len(x), rows):
        yield x[start : start + rows], y[start : start + rows]


def _of_classes(
    found: Classification, target: Tensor, ignore_index: int, classes: Sequence[str]
) -> dict[str, float]:
    probs, labels = found.probs.movedim(1, -1).flatten(0, -2), target.flatten()
    known = labels != ignore_index
    probs, labels, total = probs[known], labels[known], found.total.flatten()[known]
    figures = _scores(probs, labels) | _errors_found(probs.argmax(1) == labels, total)
    if found.probs.dim() > 2:
        overlaps = class_ious(probs.argmax(1), labels, probs.shape[1])
        figures["mean_iou"] = sum(overlaps.values()) / len(overlaps)
        named = classes if len(classes) == probs.shape[1] else range(probs.shape[1])
        figures |= {f"{IOU}{named[k]}": overlap for k, overlap in overlaps.items()}
    return figures


def _errors_found(right: Tensor, total: Tensor) -> dict[str, float]:
    """AUROC of wrong elements against right ones by their total uncertainty."""
    if bool(right.all()) or not bool(right.any()):
        return {}
    return {"error_auroc": float(lb.metrics.auroc(total[right], total[~right]))}


def _of_two(found: BinaryClassification, target: Tensor) -> dict[str, float]:
    probs = found.probs.flatten()
    return _scores(torch.stack([1 - probs, probs], 1), target.flatten().long())


def _scores(probs: Tensor, labels: Tensor) -> dict[str, float]:
    wrong = labels[(labels < 0) | (labels >= probs.shape[1])]
    if len(wrong):
        raise DataError(
            f"label {int(wrong[0])} is outside the {probs.shape[1]} classes of the network"
        )
    metrics = lb.metrics
    names = {"accuracy": metrics.accuracy, "nll": metrics.nll, "ece": metrics.ece}
    scored = {name: float(figure(probs, labels)) for name, figure in names.items()}
    return {**scored, "brier": float(metrics.brier(probs, labels))}


def _of_numbers(found: Regression, target: Tensor) -> dict[str, float]:
    target = target.reshape(found.mean.shape).double()
    low, high = found.interval(0.95)
    return {
        "rmse": float(lb.metrics.rmse(found.mean, target)),
        "lpd": float(found.log_prob(target).mean()),
        "coverage_95": float(lb.metrics.interval_coverage(low, high, target)),
    }


def class_ious(labels: Tensor, target: Tensor, classes: int) -> dict[int, float]:
    """`|both| / |either|` of every class that occurs.

    Example:
        >>> class_ious(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 3)
        {0: 0.5, 1: 0.5}
    """
    pairs = torch.bincount(target * classes + labels, minlength=classes**2).reshape(classes, -1)
    pairs = pairs.double()
    both = pairs.diag()
    either = pairs.sum(0) + pairs.sum(1) - both
    return {k: float(both[k] / either[k]) for k in range(classes) if either[k] > 0}


def _by_row(values: Tensor) -> Tensor:
    return values if values.dim() == 1 else values.flatten(1).mean(1)
