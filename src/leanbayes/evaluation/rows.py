"""Uncertainty of every row of a split: three numbers a row, in the order of the rows."""

from __future__ import annotations

import math
from typing import Any, Final, Self

import torch
from torch import Tensor

from leanbayes.metrics import Accumulator, auroc, average_precision, fpr95
from leanbayes.metrics.check import refuse
from leanbayes.prediction import Prediction

KINDS: Final = ("total", "aleatoric", "epistemic")
SCORES: Final = {"auroc": auroc, "ap": average_precision, "fpr95": fpr95}
BINS = 30  # of histograms


class Rows(Accumulator):
    """Total, aleatoric and epistemic uncertainty by row; means over the elements of a row."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []

    def settings(self) -> tuple[Any, ...]:
        """None."""
        return ()

    def update(self, found: Prediction) -> None:
        """Add the rows of a prediction."""
        columns = [_by_row(getattr(found, kind)) for kind in KINDS]
        self.parts.append(torch.stack(columns, 1).to("cpu", torch.float64))

    def merge(self, other: Self) -> None:
        """Add rows that come after these."""
        self.parts += other.parts

    def table(self) -> Tensor:
        """All rows, [N, 3]."""
        if not self.parts:
            refuse("no rows were seen", "one or more", "update(prediction) first")
        self.parts = [torch.cat(self.parts)]
        return self.parts[0]

    def value(self) -> Tensor:
        """Mean total uncertainty."""
        return self.table()[:, 0].mean()


def means(table: Tensor) -> dict[str, float]:
    """Mean uncertainties of rows [N, 3]."""
    return dict(zip(KINDS, table.mean(0).tolist(), strict=True))


def told_apart(own: Tensor, strange: Tensor, random: bool) -> dict[str, float]:
    """AUROC, AP and FPR95 of strange rows [M, 3] against own ones [N, 3].

    The score is the entropy of the predictive, or the mutual information, which is 0 for a model
    that is not random and is then left out.

    Example:
        >>> own, strange = torch.zeros(2, 3), torch.ones(1, 3)
        >>> told_apart(own, strange, random=False)
        {'auroc_total': 1.0, 'ap_total': 1.0, 'fpr95_total': 0.0}
    """
    kinds = (0, 2) if random else (0,)
    return {
        f"{name}_{KINDS[kind]}": float(score(own[:, kind], strange[:, kind]))
        for kind in kinds
        for name, score in SCORES.items()
    }


def histogram(table: Tensor, classes: int) -> dict[str, list[Any]]:
    """Counts of rows by total and by epistemic uncertainty, from 0 to ln C in 30 bins.

    Values beyond the ends, by rounding, are in the first and the last bin.
    """
    top = math.log(classes)
    cells = (table / top * BINS).long().clamp(0, BINS - 1)
    counts = {
        k: torch.bincount(cells[:, at], minlength=BINS).tolist() for at, k in enumerate(KINDS)
    }
    edges = [top * at / BINS for at in range(BINS + 1)]
    return {"edges": edges, "total": counts["total"], "epistemic": counts["epistemic"]}


def _by_row(values: Tensor) -> Tensor:
    return values if values.dim() == 1 else values.flatten(1).mean(1)
