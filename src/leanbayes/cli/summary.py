"""Scores over seeds: mean, standard error, and the difference to the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it imports torch
    from leanbayes.cli.demo.comparison import Comparison, Score

# Metric: +1 where more is better, -1 where less is.
METRICS = {
    "accuracy": 1,
    "nll": -1,
    "ece": -1,
    "brier": -1,
    "ood_auroc_total": 1,
    "ood_auroc_epistemic": 1,
}
CLEAR = 2.0  # standard errors


def summarise(runs: Sequence[Comparison]) -> list[dict[str, Any]]:
    """A row a label, in the order of the first run: figures over the seeds."""
    scores = [{score.label: score for score in run.scores} for run in runs]
    labels = [label for label in scores[0] if all(label in by_label for by_label in scores)]
    baseline = [by_label[labels[0]] for by_label in scores]
    trained = [run.training_seconds for run in runs]
    return [_row([by_label[label] for by_label in scores], baseline, trained) for label in labels]


def _row(
    own: Sequence[Score], baseline: Sequence[Score], trained: Sequence[float]
) -> dict[str, Any]:
    """Plain data of one method; the baseline of the same seed is subtracted a seed at a time."""
    pairs = list(zip(own, baseline, strict=True))
    before = list(zip(own, baseline, trained, strict=True))
    return {
        "label": own[0].label,
        "method": own[0].method,
        **{name: moments([getattr(score, name) for score in own]) for name in METRICS},
        "minus_baseline": {
            name: moments([_difference(score, base, name) for score, base in pairs])
            for name in METRICS
        },
        "parameters_added": own[0].parameters_added,
        "samples": own[0].samples,
        "step_ratio": fmean(score.step_ratio(base) for score, base in pairs),
        "training_ratio": fmean(score.training_ratio(base, start) for score, base, start in before),
        "predict_ratio": fmean(score.predict_ratio(base) for score, base in pairs),
        "seconds": fmean(score.seconds for score in own),
    }


def _difference(score: Score, base: Score, name: str) -> float | None:
    own, other = getattr(score, name), getattr(base, name)
    return None if own is None or other is None else own - other


def moments(values: Sequence[float | None]) -> dict[str, float | None]:
    """Mean and standard error; no error of one value or infinite ones, nothing of a missing value.

    Example:
        >>> moments([1.0, 3.0])
        {'mean': 2.0, 'standard_error': 1.0}
    """
    found = [value for value in values if value is not None]
    if not found or len(found) < len(values):
        return {"mean": None, "standard_error": None}
    known = len(found) > 1 and all(map(math.isfinite, found))
    error = stdev(found) / math.sqrt(len(found)) if known else None
    return {"mean": fmean(found), "standard_error": error}


def better(row: dict[str, Any], metric: str = "nll") -> bool | None:
    """True or False where a row beats or loses against the baseline; None where one cannot say.

    With several seeds a difference counts if it exceeds two standard errors.
    """
    difference = row["minus_baseline"][metric]
    if difference["mean"] is None:
        return None
    gain = METRICS[metric] * difference["mean"]
    if difference["standard_error"] is None:
        return bool(gain > 0)
    return bool(gain > 0) if abs(gain) > CLEAR * difference["standard_error"] else None


def best(rows: Sequence[dict[str, Any]], metric: str) -> float | None:
    """The best mean of a metric."""
    means = [row[metric]["mean"] for row in rows if row[metric]["mean"] is not None]
    return None if not means else max(means, key=lambda mean: METRICS[metric] * mean)
