"""Figures by number of samples (the S-sweep), from the draws of one prediction."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from leanbayes import metrics
from leanbayes.evaluation.asked import Asked
from leanbayes.evaluation.numbers import LogDensity
from leanbayes.evaluation.scores import BINS, elements, finite
from leanbayes.metrics import Accumulator
from leanbayes.predict import member_weights
from leanbayes.prediction import (
    BinaryClassification,
    Classification,
    Prediction,
    Regression,
    entropy,
)


class Sweep:
    """For 1, 2, 4, ... S draws: the scores of the average of the first so many.

    Draw s is the same for every S, so these are the figures of `lb.predict(..., samples=n)`.
    Memory: that of the scores; the samples of a batch are there anyway.
    """

    def __init__(self, asked: Asked) -> None:
        method = asked.inner.method
        self.members = method.index_members
        self.samples = asked.samples
        self.calibration = asked.inner.calibration
        self.ignore_index = asked.suite.ignore_index
        self.points: dict[int, dict[str, Accumulator]] = {}
        self.counts = doubled(asked.samples) if method.is_random else [1]

    def add(self, found: Prediction, target: Tensor | None) -> None:
        """Take a batch, whose samples were kept."""
        for count in self.counts:
            part = self._first(found, count)
            scores = self.points.setdefault(count, _scores(part))
            if isinstance(part, Regression):
                assert target is not None
                wanted = target.reshape(part.mean.shape).double()
                scores["rmse"].update(part.mean, wanted)
                scores["lpd"].update(part, wanted)
                continue
            probs, labels, _ = elements(part, target, self.ignore_index)
            for score in scores.values() if len(labels) else ():
                score.update(probs, labels)

    def merge(self, other: Self) -> None:
        """Take over what was seen of the rows that come next."""
        for count, scores in other.points.items():
            if count not in self.points:
                self.points[count] = scores
                continue
            for name, score in self.points[count].items():
                score.merge(scores[name])

    def curve(self) -> dict[str, list[Any]]:
        """Numbers of samples, and the figures of each; null where one is infinite."""
        names = next(iter(self.points.values()))
        columns = {n: [finite(float(p[n].value())) for p in self.points.values()] for n in names}
        return {"samples": list(self.points), **columns}

    def _first(self, found: Prediction, count: int) -> Prediction:
        """The prediction of the first draws."""
        if count == self.samples:
            return found
        assert found.samples is not None
        heads = len(found.weights) // self.samples
        with warnings.catch_warnings():  # fewer samples than members are what is looked at
            warnings.simplefilter("ignore")
            weights = member_weights(count, self.members).to(found.samples.device)
        weights = weights.repeat_interleave(heads) / heads
        part = replace(found, samples=found.samples[: len(weights)], weights=weights)
        plain = _averaged(replace(part, conformal=None))
        return plain if self.calibration is None else self.calibration.applied(plain)


def doubled(samples: int) -> list[int]:
    """1, 2, 4, ... and the number itself.

    Example:
        >>> doubled(20)
        [1, 2, 4, 8, 16, 20]
    """
    return [2**k for k in range(samples.bit_length()) if 2**k < samples] + [samples]


def _scores(found: Prediction) -> dict[str, Accumulator]:
    if isinstance(found, Regression):
        return {"rmse": metrics.Average(metrics.rmse), "lpd": LogDensity()}
    return {
        "accuracy": metrics.Average(metrics.accuracy),
        "nll": metrics.Average(metrics.nll),
        "ece": metrics.ECE(BINS),
        "brier": metrics.Average(metrics.brier),
    }


def _averaged(found: Prediction) -> Prediction:
    """Means over the samples that are there."""
    assert found.samples is not None
    mean = torch.einsum("s,s...->...", found.weights.to(found.samples), found.samples)
    if isinstance(found, Regression):
        means, noise = mean.unbind(-1)
        spread = (found.samples[..., 0] - means).square()
        epistemic = torch.einsum("s,s...->...", found.weights.to(spread), spread)
        return replace(found, mean=means, aleatoric=noise, epistemic=epistemic)
    # A temperature needs the parts of the uncertainty; the curve does not show them.
    if isinstance(found, BinaryClassification):
        part = replace(found, probs=mean, complement=1 - mean)
        return replace(part, aleatoric=part.total)
    assert isinstance(found, Classification)
    return replace(found, probs=mean, aleatoric=entropy(mean, 1))
