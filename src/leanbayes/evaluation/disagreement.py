"""How much single draws differ: disagreement of their labels, added up batch by batch."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from leanbayes.metrics import label_disagreement
from leanbayes.prediction import BinaryClassification, Classification, Prediction, is_label


class Disagreement:
    """`mean_{s<t} P(label_s != label_t)` over draws (of an ensemble: over its members).

    Figures: `disagreement`; `draw_accuracy`, that of a single draw, averaged over the draws; and
    `disagreement_normalised`, the first over `1 - draw_accuracy`, as in Rank-1 BNNs (Dusenberry et
    al. 2020, section 3.5): what the errors of the draws allow is taken out.

    Args:
        distinct: Draws after which they repeat, which have nothing to disagree on; 0 if none do.
    """

    def __init__(self, distinct: int = 0) -> None:
        self.distinct = distinct
        self.sums = torch.zeros(3, dtype=torch.float64)  # disagreement, accuracy, elements

    def add(self, found: Prediction, target: Tensor | None, ignore_index: int) -> None:
        """Take a batch whose draws were kept; without them, or of a single one, nothing."""
        labels = _labels(found, self.distinct or None)
        if labels is None or target is None:
            return
        wanted = target.reshape(labels.shape[1:]).to(labels.device)
        known = is_label(wanted, ignore_index)
        chosen, own = labels[:, known], wanted[known]
        count = len(own)
        if count:
            differ = label_disagreement(chosen)
            right = (chosen == own).double().mean()
            self.sums += torch.stack([differ.cpu() * count, right.cpu() * count, _whole(count)])

    def merge(self, other: Self) -> None:
        """Take over what was seen of other rows."""
        self.sums += other.sums

    def figures(self) -> dict[str, float]:
        """By name; nothing where no draws were seen."""
        differ, right, count = self.sums.tolist()
        if not count:
            return {}
        share, accuracy = differ / count, right / count
        normalised = share / (1 - accuracy) if share else 0.0
        return {
            "disagreement": share,
            "disagreement_normalised": normalised,
            "draw_accuracy": accuracy,
        }


def _whole(count: int) -> Tensor:
    return torch.tensor(float(count), dtype=torch.float64)


def _labels(found: Prediction, most: int | None) -> Tensor | None:
    """The label of every draw, [S, B, ...], of the first ones; None where there are not two."""
    samples = None if found.samples is None else found.samples[:most]
    if samples is None or len(samples) < 2:
        return None
    match found:
        case Classification():
            return samples.argmax(2)
        case BinaryClassification():
            return (samples > 0.5).long()
        case _:
            return None
