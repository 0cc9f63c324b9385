"""Curves of a split as plain lists."""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor

from leanbayes.metrics import Reliability
from leanbayes.metrics.selective import at_coverage

COVERAGES: Final = (0.8, 0.9, 0.95)  # of single figures
STEPS = 20  # of a rejection curve


def reliability(table: Reliability) -> dict[str, list[Any]]:
    """Confidence, accuracy and count of every bin; null where it is empty."""
    count = table.count.tolist()
    return {
        "confidence": _where(table.confidence, count),
        "accuracy": _where(table.accuracy, count),
        "count": count,
    }


def rejection(curve: Tensor) -> dict[str, list[float]]:
    """Accuracy on the most certain 5 %, 10 %, ... 100 %.

    Example:
        >>> import torch
        >>> found = rejection(torch.tensor([1.0, 1.0, 0.5, 0.5]))
        >>> found["coverage"][9], found["accuracy"][9], found["accuracy"][-1]
        (0.5, 1.0, 0.5)
    """
    coverage = [step / STEPS for step in range(1, STEPS + 1)]
    return {"coverage": coverage, "accuracy": [float(at_coverage(curve, c)) for c in coverage]}


def _where(values: Tensor, count: list[int]) -> list[float | None]:
    return [value if n else None for value, n in zip(values.tolist(), count, strict=True)]
