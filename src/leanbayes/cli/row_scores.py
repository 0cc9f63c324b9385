"""Scores of single rows: those figures whose value on a part is the mean over its rows."""

from __future__ import annotations

import torch
from torch import Tensor

from leanbayes.evaluation.numbers import numbers_of
from leanbayes.evaluation.scores import elements
from leanbayes.prediction import BinaryClassification, Classification, Prediction, Regression

TINY = torch.finfo(torch.float64).tiny


def row_scores(found: Prediction, target: Tensor, ignore_index: int) -> dict[str, Tensor]:
    """Accuracy, NLL and Brier score of every labelled row, or the log density; [N] each.

    Example:
        >>> p = Classification(None, torch.ones(1), torch.tensor([[0.25, 0.75]]), torch.zeros(1))
        >>> {name: round(float(v), 4) for name, v in row_scores(p, torch.tensor([1]), -100).items()}
        {'accuracy': 1.0, 'nll': 0.2877, 'brier': 0.125}
    """
    if isinstance(found, Regression):
        density = found.log_prob(numbers_of(found, target))
        return {"lpd": density.flatten(1).mean(1)}
    if isinstance(found, BinaryClassification) or (
        isinstance(found, Classification) and found.probs.dim() == 2
    ):
        probs, labels, _ = elements(found, target, ignore_index)
        return _of_classes(probs.double(), labels)
    return {}


def _of_classes(probs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    right = torch.nn.functional.one_hot(labels, probs.shape[1])
    return {
        "accuracy": (probs.argmax(1) == labels).double(),
        "nll": -probs.gather(1, labels[:, None])[:, 0].clamp_min(TINY).log(),
        "brier": (probs - right).square().sum(1),
    }
