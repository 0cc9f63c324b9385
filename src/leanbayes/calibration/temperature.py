"""Temperature scaling of the averaged predictive.

    p_T = softmax(ln p_mean / T),      p_mean = mean_s p(y | x, w_s)

T > 1 where a model is too sure of itself. With b = 1 / T the mean negative log likelihood on held
out data, `mean_i [ln sum_c p_ic^b - b ln p_i(y_i)]`, is convex in b, and T = 1 is one of the
candidates, so the best one is never worse (Guo et al. 2017, "On calibration of modern neural
networks", for a single network's logits). The most probable class stays the same.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Final, TypeVar

import torch
from torch import Tensor

from leanbayes.errors import DataError
from leanbayes.prediction import BinaryClassification, Classification

COLDEST: Final = 0.01
HOTTEST: Final = 100.0
STEPS: Final = 200  # Newton needs about ten; halving an interval to the last digit about sixty
ROUNDING: Final = 1e-14

Labels = TypeVar("Labels", Classification, BinaryClassification)


def fit_temperature(log_probs: Tensor, target: Tensor) -> float:
    """The T between 0.01 and 100 of the least negative log likelihood.

    Newton's method on the slope in b = 1 / T, kept within an interval that holds the zero; float64.
    Cost: about ten times that of a softmax.

    Args:
        log_probs: Log of the averaged probabilities, [N, C].
        target: Labels, [N].

    Example:
        >>> sure = torch.tensor([[0.99, 0.01]]).log().repeat(4, 1)
        >>> round(fit_temperature(sure, torch.tensor([0, 0, 0, 1])), 3)  # right in 3 of 4 cases
        4.183
    """
    if not len(target):
        raise DataError("no labels to fit a temperature to: expected at least one")
    curve = _Curve(log_probs.detach().double(), target)
    low, high = 1 / HOTTEST, 1 / COLDEST
    for end, sign in ((low, 1), (high, -1)):
        if sign * curve.slope(end)[0] >= 0 and curve.better(end):
            return _at_the_end(1 / end)
    return 1 / _zero(curve, low, high)


def _zero(curve: _Curve, low: float, high: float) -> float:
    b = 1.0
    for _ in range(STEPS):
        slope, bend = curve.slope(b)
        if slope == 0:
            break
        low, high = (low, b) if slope > 0 else (b, high)
        wanted = b - slope / bend if bend > 0 else low
        before, b = b, wanted if low < wanted < high else (low * high) ** 0.5
        if abs(b - before) <= 1e-13 * b:
            break
    return b if curve.better(b) else 1.0


def _at_the_end(temperature: float) -> float:
    words = "all labels are the most probable ones" if temperature < 1 else "labels look random"
    warnings.warn(
        f"the best temperature lies beyond {temperature:g} ({words}): {temperature:g} is taken. "
        "Give more data to calibrate on, which the network was not trained on",
        stacklevel=5,
    )
    return temperature


class _Curve:
    """The mean negative log likelihood as a function of b = 1 / T."""

    def __init__(self, logits: Tensor, target: Tensor) -> None:
        self.logits = logits
        self.own = logits.gather(1, target.unsqueeze(1)).squeeze(1)

    def value(self, b: float) -> float:
        """`mean_i [ln sum_c exp(b l_ic) - b l_i(y_i)]`."""
        return float((torch.logsumexp(b * self.logits, 1) - b * self.own).mean())

    def better(self, b: float) -> bool:
        """True where b beats no temperature by more than rounding."""
        return self.value(b) < self.value(1.0) - ROUNDING

    def slope(self, b: float) -> tuple[float, float]:
        """First and second derivative: means of `E l - l(y)` and of `Var l` under p_T."""
        probs = torch.softmax(b * self.logits, 1)
        lead = self.logits - self.own.unsqueeze(1)  # of one sign where a label is always best
        mean = (probs * lead).sum(1)
        variance = (probs * (lead - mean.unsqueeze(1)).square()).sum(1)
        return float(mean.mean()), float(variance.mean())


def tempered(found: Labels, temperature: float) -> Labels:
    """The prediction with the probabilities p_T.

    `total` is their entropy; aleatoric and epistemic keep their shares of it. Samples stay as they
    were drawn.
    """
    before = found.total
    changed: Any = found
    if isinstance(found, Classification):
        changed = replace(found, probs=torch.softmax(safe_log(found.probs) / temperature, 1))
    else:
        logits = (safe_log(found.probs) - safe_log(found.complement)) / temperature
        changed = replace(found, probs=logits.sigmoid(), complement=(-logits).sigmoid())
    share = torch.where(before > 0, found.aleatoric / before.clamp_min(tiny(before)), 1.0)
    result: Labels = replace(changed, aleatoric=share * changed.total)
    return result


def safe_log(probs: Tensor) -> Tensor:
    """Finite, where a probability has underflown too."""
    return probs.clamp_min(tiny(probs)).log()


def tiny(like: Tensor) -> float:
    """The least normal number of a type."""
    return torch.finfo(like.dtype).tiny
