"""Confusion of classes, and the overlap of predicted and true regions (IoU).

Own code: torchmetrics' ``segmentation.mean_iou`` averages the ratios of single images, where the
usual figure of a data set is the ratio of its sums. Shapes: ``B`` batch, ``C`` classes.
"""

import torch
from torch import Tensor

from leanbayes.errors import DataError
from leanbayes.metrics.check import as_rows

__all__ = ["class_iou", "confusion", "iou_of_pairs", "mean_iou"]


def confusion(predicted: Tensor, target: Tensor, classes: int) -> Tensor:
    """Count the elements of class i that were labelled j, ``[classes, classes]``, int64.

    Args:
        predicted: ``[N]`` class indices.
        target: ``[N]`` class indices.
        classes: how many.

    Example:
        >>> confusion(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 2).tolist()
        [[1, 0], [1, 1]]
    """
    if predicted.shape != target.shape or predicted.dim() != 1:
        shapes = f"{tuple(predicted.shape)} and {tuple(target.shape)}"
        raise DataError(f"expected two vectors of as many class indices, found shapes {shapes}")
    for name, indices in (("predicted", predicted), ("target", target)):
        wrong = indices[(indices < 0) | (indices >= classes)]
        if len(wrong):
            raise DataError(
                f"{name} holds {wrong[0].item()}, expected classes 0 to {classes - 1}: leave out "
                "elements without a label, predicted[keep], target[keep]"
            )
    pairs = torch.bincount(target.long() * classes + predicted.long(), minlength=classes**2)
    return pairs.reshape(classes, classes)


def iou_of_pairs(pairs: Tensor) -> Tensor:
    """``|both| / |either|`` of every class from a confusion matrix; NaN where it never occurs.

    Example:
        >>> iou_of_pairs(torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 0]])).tolist()
        [0.5, 0.5, nan]
    """
    pairs = pairs.to(torch.float64)
    both = pairs.diag()
    return both / (pairs.sum(0) + pairs.sum(1) - both)


def class_iou(probs: Tensor, target: Tensor) -> Tensor:
    """Intersection over union of every class over all elements, ``tp / (tp + fp + fn)``.

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices; leave elements without a label out:
            ``probs.movedim(1, -1)[keep], target[keep]``.

    Returns:
        ``[C]``, float64; NaN for a class that is neither true nor predicted anywhere.

    Example:
        >>> class_iou(torch.eye(3)[[0, 0, 1]], torch.tensor([0, 1, 1])).tolist()
        [0.5, 0.5, nan]
    """
    rows, target = as_rows(probs, target)
    return iou_of_pairs(confusion(rows.argmax(dim=1), target, rows.shape[1]))


def mean_iou(probs: Tensor, target: Tensor) -> Tensor:
    """Mean of `class_iou` over the classes that occur, as labels or as predictions.

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> mean_iou(torch.eye(3)[[0, 0, 1]], torch.tensor([0, 1, 1])).item()
        0.5
    """
    return class_iou(probs, target).nanmean()
