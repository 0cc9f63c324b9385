"""Open-set verification: do two examples show the same thing, which no class stands for?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from leanbayes.errors import ConfigError, DataError
from leanbayes.metrics import auroc


@dataclass(frozen=True, eq=False)
class Verification:
    """How well cosine scores tell pairs of the same from pairs of different things.

    Attributes:
        accuracy: Mean over the folds of the accuracy at the other folds' best threshold.
        accuracy_std: Standard deviation over the folds (divided by their number).
        thresholds: Thresholds of the ROC curve, falling from infinity, [N].
        fpr: Part of the different pairs whose score reaches the threshold, [N].
        tpr: Part of the same pairs whose score reaches the threshold, [N].
        auroc: Area under the curve.
        fold_thresholds: The best threshold that each fold was judged by, [folds].
    """

    accuracy: float
    accuracy_std: float
    thresholds: Tensor
    fpr: Tensor
    tpr: Tensor
    auroc: float
    fold_thresholds: Tensor

    def __repr__(self) -> str:
        return (
            f"Verification(accuracy={self.accuracy:.4f} +- {self.accuracy_std:.4f}, "
            f"auroc={self.auroc:.4f}, threshold={float(self.fold_thresholds.mean()):.4f})"
        )


def verify(
    first: Tensor, second: Tensor, same: Tensor, *, folds: int = 10, seed: int = 0
) -> Verification:
    """Compare pairs by the cosine of their features: "same" where it reaches a threshold.

    The threshold of a fold is the best one on the others (midway between two scores; of equally
    good ones the highest), so that no pair has a say in its own verdict: the protocol of Labeled
    Faces in the Wild (Huang et al. 2007), with folds at random. Cost: one sort a fold.

    Args:
        first: Features of the first of every pair, [P, ...], such as `lb.predict_features` gives.
        second: Features of the second, the same shape.
        same: True or 1 where a pair is of the same, [P].
        folds: Parts of the pairs; the threshold for one is chosen on the others.
        seed: Of the random folds.

    Example:
        >>> first = torch.tensor([[1.0, 0.0]]).repeat(20, 1)
        >>> second = torch.tensor([[1.0, 0.1], [0.0, 1.0]]).repeat(10, 1)
        >>> verify(first, second, torch.tensor([1, 0]).repeat(10))
        Verification(accuracy=1.0000 +- 0.0000, auroc=1.0000, threshold=0.4975)
    """
    scores, same = _scores(first, second), _checked_labels(same, len(first))
    if isinstance(folds, bool) or not 2 <= folds <= len(scores):
        raise ConfigError(
            f"folds must be at least 2 and at most the {len(scores)} pairs, found {folds!r}"
        )
    hits, chosen = _by_fold(scores, same, folds, seed)
    thresholds, fpr, tpr = _roc(scores, same)
    area = float(auroc(scores[~same], scores[same]))
    spread = float(hits.std(correction=0))
    return Verification(float(hits.mean()), spread, thresholds, fpr, tpr, area, chosen)


def _by_fold(scores: Tensor, same: Tensor, folds: int, seed: int) -> tuple[Tensor, Tensor]:
    """Accuracy of every fold, and the threshold it was judged by."""
    order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(seed))
    hits, chosen = [], []
    for held_out in order.tensor_split(folds):
        others = torch.ones(len(scores), dtype=torch.bool)
        others[held_out] = False
        chosen.append(best_threshold(scores[others], same[others]))
        hits.append(((scores[held_out] >= chosen[-1]) == same[held_out]).double().mean())
    return torch.stack(hits), torch.stack(chosen)


def best_threshold(scores: Tensor, same: Tensor) -> Tensor:
    """The threshold with the most pairs right, midway between scores; the highest of several.

    Example:
        >>> best_threshold(torch.tensor([0.2, 0.4, 0.8]), torch.tensor([False, True, True])).item()
        0.30000001192092896
    """
    ranked, order = scores.sort(descending=True)
    taken = same[order].long() * 2 - 1  # +1 for a pair rightly accepted, -1 for a wrong one
    gain = F.pad(taken.cumsum(0), (1, 0))  # after the k highest are accepted
    between = torch.ones_like(gain, dtype=torch.bool)
    between[1:-1] = ranked[:-1] > ranked[1:]  # equal scores stay together
    k = int(torch.where(between, gain, -len(scores) - 1).argmax())
    if k == 0:
        return torch.nextafter(ranked[0], ranked.new_tensor(torch.inf))
    if k == len(ranked):
        return ranked[-1]
    middle = (ranked[k - 1] + ranked[k]) / 2
    return middle if middle > ranked[k] else ranked[k - 1]  # neighbours among the floats


def _roc(scores: Tensor, same: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every distinct score as a threshold, from the highest; before them one that none reaches."""
    thresholds = torch.unique(scores).flip(0)
    rates = [
        (len(part) - torch.searchsorted(part.sort().values, thresholds)).double() / len(part)
        for part in (scores[~same], scores[same])
    ]
    fpr, tpr = (F.pad(rate, (1, 0)) for rate in rates)
    return F.pad(thresholds, (1, 0), value=torch.inf), fpr, tpr


def _scores(first: Tensor, second: Tensor) -> Tensor:
    if first.shape != second.shape or first.dim() < 2:
        raise DataError(
            f"features of pairs have shapes {tuple(first.shape)} and {tuple(second.shape)}: "
            "expected the same shape [P, ...], row i of both is pair i"
        )
    pairs = [x.detach().cpu().double().flatten(1) for x in (first, second)]
    for name, x in zip(("first", "second"), pairs, strict=True):
        wrong = int(x.isfinite().all(1).logical_not().sum())
        if wrong:
            raise DataError(f"{name} holds {wrong} of {len(x)} rows with infinite values or nan")
    return F.cosine_similarity(pairs[0], pairs[1], dim=1)


def _checked_labels(same: Tensor, pairs: int) -> Tensor:
    same = same.detach().cpu()
    if same.shape != (pairs,) or not bool(((same == 0) | (same == 1)).all()):
        raise DataError(
            f"same has shape {tuple(same.shape)}: expected {pairs} values of 0 (different) or 1"
        )
    if not 0 < int(same.sum()) < pairs:
        raise DataError(
            f"{int(same.sum())} of {pairs} pairs are of the same: expected some of both kinds"
        )
    return same.bool()
