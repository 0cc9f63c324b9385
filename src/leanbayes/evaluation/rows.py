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
BINS = 30  # of a histogram of total uncertainty
FINE = 240  # of one of epistemic uncertainty, which is often a hundredth of the total


class Rows(Accumulator):
    """Total, aleatoric and epistemic uncertainty by row; means over the elements of a row."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []

    def settings(self) -> tuple[Any, ...]:
        """None."""
        return ()

    def update(self, found: Prediction) -> None:
        """Add the rows of a prediction."""
        columns = [row_means(getattr(found, kind)) for kind in KINDS]
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
    """Counts of rows by total uncertainty, and by epistemic uncertainty in finer bins.

    Total: 30 equal bins from 0 to ln C. Epistemic: the edges are (k / 240)^2 ln C, since mutual
    information is mostly near 0; both lists end after the last bin that holds a row. The edges
    depend on C alone, so counts of any splits and models fit each other. Values beyond the ends,
    by rounding, are in the first and the last bin.

    Example:
        >>> found = histogram(torch.tensor([[0.5, 0.4999, 0.0001], [0.6, 0.6, 0.0]]), 2)
        >>> found["epistemic_edges"], found["epistemic"]
        ([0.0, 1.2034e-05, 4.8135e-05, 0.0001083], [1, 0, 1])
    """
    top = math.log(classes)
    edges = [top * at / BINS for at in range(BINS + 1)]
    cells = (table[:, 0] / top * BINS).long().clamp(0, BINS - 1)
    total = torch.bincount(cells, minlength=BINS).tolist()
    return {"edges": edges, "total": total, **_epistemic(table[:, 2], top)}


def _epistemic(values: Tensor, top: float) -> dict[str, list[Any]]:
    """Edges of five digits, which keep files small, and what lies between exactly these."""
    edges = [float(f"{top * (at / FINE) ** 2:.5g}") for at in range(FINE + 1)]
    inner = torch.tensor(edges[1:-1], dtype=values.dtype)
    counts = torch.bincount(torch.bucketize(values.contiguous(), inner, right=True)).tolist()
    return {"epistemic_edges": edges[: len(counts) + 1], "epistemic": counts}


def row_means(values: Tensor) -> Tensor:
    """One value a row: the mean over its elements where it has several."""
    return values if values.dim() == 1 else values.flatten(1).mean(1)
