"""A prediction of one row as the plain data of an answer.

`spread` holds quantiles over the draws, by weight: the least value v with
`sum_s w_s [value_s <= v] >= q`. Draws are those of `lb.predict`, before any temperature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from math import isfinite
from typing import Any, Final

import torch
from torch import Tensor

from leanbayes.errors import ConfigError
from leanbayes.prediction import BinaryClassification, Classification, Prediction, Regression
from leanbayes.serving.served import Kind, Served

LEVELS: Final = (0.05, 0.5, 0.95)
SHOWN: Final = 12  # most probable classes whose draws an answer may hold
COVERED: Final = 0.95  # by an interval without calibration
UNCERTAINTY: Final = ("total", "aleatoric", "epistemic")
ROUNDING: Final = 1e-9


def rows_of(found: Prediction) -> list[Prediction]:
    """Predictions of one row each."""
    return [_row(found, at) for at in range(len(found))]


def _row(found: Prediction, at: int) -> Prediction:
    names = [f.name for f in fields(found) if f.name not in ("samples", "weights", "conformal")]
    own: dict[str, Any] = {name: getattr(found, name)[at : at + 1] for name in names}
    kept = None if found.samples is None else found.samples[:, at : at + 1]
    return replace(found, samples=kept, **own)


def kind_of(found: Prediction) -> Kind:
    """Of the answers; an error for predictions of many elements a row.

    Raises:
        ConfigError: Every row has many labels.
    """
    if isinstance(found, Regression) and found.mean.dim() <= 2:
        return "numbers"
    if isinstance(found, Classification | BinaryClassification) and found.total.numel() == 1:
        return "classes"
    shape = "x".join(map(str, found.total.shape[1:]))
    raise ConfigError(
        f"the run answers an input with {shape} labels, and serve shows one label or some numbers: "
        "for pixels write `leanbayes evaluate RUN --picture FILE.png`, else `leanbayes predict`"
    )


def answer_of(
    found: Prediction, served: Served, asked: tuple[int, int], draws: bool
) -> dict[str, Any]:
    """What a client gets, but for the time.

    Args:
        found: Of one row, with its samples.
        served: Names of the classes, and the calibration.
        asked: Samples and seed, the latter also of randomised sets.
        draws: Add every draw of the most probable classes.
    """
    kind = kind_of(found)
    common = {"task": kind, "samples": asked[0], "seed": asked[1]}
    calibrated = _calibrated(served, asked)
    if isinstance(found, Regression):
        return {**common, **_numbers(found, draws), "calibration": calibrated}
    assert isinstance(found, Classification | BinaryClassification)
    return {**common, **_classes(found, served, asked[1], draws), "calibration": calibrated}


def _calibrated(served: Served, asked: tuple[int, int]) -> dict[str, Any] | None:
    """Temperature and coverage, and whether the draws are those that the guarantee is for."""
    known = served.calibration()
    if known is None:
        return None
    conformal = known["conformal"]
    coverage = None if conformal is None else 1 - conformal["alpha"]
    same = coverage is not None and asked == served.draws
    return {"temperature": known["temperature"], "coverage": coverage, "guaranteed": same}


def _classes(
    found: Classification | BinaryClassification, served: Served, seed: int, draws: bool
) -> dict[str, Any]:
    probs, every = _by_class(found)
    names = [served.class_name(at) for at in range(len(probs))]
    best = int(found.label)
    answer: dict[str, Any] = {"label": names[best], "index": best}
    answer |= {name: float(getattr(found, name)) for name in ("confidence", *UNCERTAINTY)}
    answer |= {"classes": names, "probabilities": probs.tolist()}
    answer |= {"spread": spread(every, found.weights), "set": _set(found, names, seed)}
    if draws:
        shown = probs.argsort(descending=True, stable=True)[:SHOWN].tolist()
        answer["draws"] = [{"index": at, "values": every[:, at].tolist()} for at in shown]
    return answer


def _by_class(found: Classification | BinaryClassification) -> tuple[Tensor, Tensor]:
    """Probabilities [C] and those of every draw [S, C]; a yes or no has two classes."""
    assert found.samples is not None
    if isinstance(found, Classification):
        return found.probs[0], found.samples[:, 0]
    yes, every = found.probs.reshape(1), found.samples.reshape(-1, 1)
    return torch.cat([1 - yes, yes]), torch.cat([1 - every, every], 1)


def _set(
    found: Classification | BinaryClassification, names: Sequence[str], seed: int
) -> list[str] | None:
    """Classes of the conformal set, most probable first."""
    if found.conformal is None:
        return None
    inside, order = found.sets(seed=seed)[0], _by_class(found)[0].argsort(descending=True)
    return [names[at] for at in order.tolist() if inside[at]]


def _numbers(found: Regression, draws: bool) -> dict[str, Any]:
    low, high = found.interval() if found.conformal is not None else found.interval(COVERED)
    named = {"mean": found.mean, "std": found.std, "low": low, "high": high}
    named |= {name: getattr(found, name) for name in UNCERTAINTY}
    assert found.samples is not None
    means = found.samples[:, 0, ..., 0].flatten(1)
    answer: dict[str, Any] = {name: _plain(values) for name, values in named.items()}
    answer["spread"] = spread(means, found.weights)
    if draws:
        targets = range(min(SHOWN, means.shape[1]))
        answer["draws"] = [{"index": at, "values": means[:, at].tolist()} for at in targets]
    return answer


def _plain(values: Tensor) -> list[float | None]:
    """Numbers of JSON, which has no infinite ones."""
    return [value if isfinite(value) else None for value in values.flatten().tolist()]


def spread(values: Tensor, weights: Tensor) -> dict[str, list[float]]:
    """Quantiles over draws [S, C] by their weights [S], a list of C each.

    Example:
        >>> spread(torch.tensor([[3.0], [1.0], [2.0]]), torch.full((3,), 1 / 3))
        {'0.05': [1.0], '0.5': [2.0], '0.95': [3.0]}
    """
    ranked, order = values.sort(0)
    reached = weights.double()[order].cumsum(0)
    found = {}
    for level in LEVELS:
        at = (reached < level - ROUNDING).sum(0, keepdim=True).clamp_max(len(values) - 1)
        found[f"{level:g}"] = ranked.gather(0, at)[0].tolist()
    return found
