"""Calibrate a trained model on held-out data; `lb.predict` and `lb.save` know it from then on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from leanbayes.calibration import Calibration, Conformal, class_scores, fit_temperature
from leanbayes.calibration.conformal import Score, exact, lots
from leanbayes.calibration.record import KINDS, Kind
from leanbayes.calibration.temperature import safe_log, tiny
from leanbayes.enumeration import heads_of
from leanbayes.errors import ConfigError, DataError
from leanbayes.likelihood import Likelihood
from leanbayes.model import BayesianModel, unwrap
from leanbayes.noise import key_seed
from leanbayes.predict import predict
from leanbayes.prediction import (
    BinaryClassification,
    Classification,
    Prediction,
    Regression,
    fits,
    is_label,
)

ROWS = 256  # of a batch of a Dataset


def calibrate(  # noqa: PLR0913
    model: nn.Module,
    validation: Any,
    *,
    method: Literal["temperature", "conformal"] = "temperature",
    alpha: float = 0.1,
    score: Score | None = None,
    randomised: bool = False,
    samples: int | None = None,
    seed: int | None = None,
    likelihood: Likelihood | None = None,
) -> Calibration:
    """Calibrate predictions on held-out data, which the model was not trained on.

    `temperature`: from now on `lb.predict` gives `softmax(ln p_mean / T)` with the T of the least
    negative log likelihood (labels only). `conformal`: predictions get `sets(alpha)` or
    `interval(q)` that hold the truth with the probability asked for (see
    `leanbayes.calibration.conformal`). You may do both, the temperature first; the guarantee then
    needs other data than the temperature was fitted on. A new temperature drops earlier scores,
    further training drops all. Cost: one `lb.predict` of the data.

    Args:
        model: A BayesianModel or its DDP, FSDP2 or compiled wrapper; the result is kept with it.
        validation: (inputs, targets), a Dataset of such, or a loader of such batches.
        method: "temperature" or "conformal".
        alpha: Probability that a set or interval misses the truth, unless a call says otherwise
            (conformal).
        score: "lac" (the default for labels) gives the smallest sets, "aps" sets that grow with the
            difficulty; "scaled" for regression (conformal).
        randomised: Draw the u of "aps": smaller sets, which do not cover more than asked.
        samples: Draws an example; predict with as many.
        seed: Key of the draws; without one it is taken from the global generator.
        likelihood: By default the one kept with the model.

    Example:
        >>> import leanbayes as lb, torch
        >>> x, y = torch.randn(50, 4), torch.arange(50) % 3
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MAP(), likelihood=lb.Categorical())
        >>> lb.calibrate(model, (x, y), method="conformal", alpha=0.2)
        Calibration(classes, lac of 50 examples, alpha=0.2)
        >>> lb.predict(model, x).sets().shape
        torch.Size([50, 3])
    """
    inner = unwrap(model)
    if method not in ("temperature", "conformal"):
        raise ConfigError(f"method is 'temperature' or 'conformal', found {method!r}")
    exact(alpha)
    key = int(torch.randint(2**62, ()).item()) if seed is None else seed
    options = {"samples": samples, "seed": key, "likelihood": likelihood}
    held = _predicted(model, validation, options)
    draws = len(held.found.weights) // heads_of(inner)  # a sample counts once for all its heads
    result = Calibration(kind=_kind(held.found), samples=draws, seed=key)
    if method == "temperature":
        result = replace(result, temperature=_temperature(held))
    else:
        result = _with_temperature(result, inner)
        held = replace(held, found=result.applied(held.found))
        conformal = Conformal(*_scores(held, score, randomised, key), alpha, randomised)
        conformal.threshold(exact(alpha))  # warns where the data are too few
        result = replace(result, conformal=conformal)
    inner.calibration = result
    return result


@dataclass(frozen=True, eq=False)
class Held:
    """Predictions of held-out examples, their targets, and the label that means "no label"."""

    found: Prediction
    target: Tensor
    ignored: int


def _predicted(model: nn.Module, validation: Any, options: dict[str, Any]) -> Held:
    """The predictive as it is without calibration, on the CPU."""
    parts, targets = [], []
    for inputs, target in _batches(validation):
        parts.append(predict(model, inputs, calibrated=False, **options).to("cpu"))
        targets.append(target.detach().cpu())
    if not parts or not len(parts[0]):
        raise DataError("nothing to calibrate on: the validation data are empty")
    found, target = type(parts[0]).cat(parts), torch.cat(targets)
    if len(target) != len(found):
        raise DataError(f"{len(found)} predictions and {len(target)} targets")
    _check_finite(found.mean if isinstance(found, Regression) else found.total, "predictions")
    _check_finite(target, "targets")
    kept = unwrap(model).likelihood if options["likelihood"] is None else options["likelihood"]
    return Held(found, target, int(getattr(kept, "ignore_index", -100)))


def _check_finite(values: Tensor, what: str) -> None:
    """A missing value would leave the temperature at 1, or be the largest score of all."""
    keep = "targets.isfinite()" if what == "targets" else "inputs.flatten(1).isfinite().all(1)"
    rows = values.isfinite().logical_not().reshape(len(values), -1).any(1).nonzero().flatten()
    if len(rows):
        raise DataError(
            f"the {what} of {len(rows)} of {len(values)} held-out examples are infinite or nan, "
            f"the first is example {int(rows[0])}; expected finite numbers. Leave those examples "
            f"out: keep = {keep}"
        )


def _batches(validation: Any) -> Iterator[tuple[Any, Tensor]]:
    pair = isinstance(validation, (tuple, list)) and len(validation) == 2
    if pair and isinstance(validation[1], Tensor):
        yield validation[0], validation[1]
        return
    if isinstance(validation, Dataset):
        validation = DataLoader(validation, ROWS)
    if not isinstance(validation, Iterable):
        raise ConfigError(
            "calibrate takes (inputs, targets), a Dataset or a loader of such; found "
            f"{type(validation).__name__}"
        )
    for batch in validation:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            found = type(batch).__name__
            found += f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
            raise ConfigError(
                "calibrate takes (inputs, targets), a Dataset or a loader of such; found a "
                f"{found} in a {type(validation).__name__}"
            )
        yield batch[0], batch[1]


def _kind(found: Prediction) -> Kind:
    if type(found) not in KINDS:
        known = ", ".join(sorted(kind.__name__ for kind in KINDS))
        raise ConfigError(f"expected a prediction of {known}; found {type(found).__name__}")
    return KINDS[type(found)]


def _with_temperature(plain: Calibration, model: BayesianModel) -> Calibration:
    kept = model.calibration
    if kept is None or kept.kind != plain.kind:
        return plain
    return replace(plain, temperature=kept.temperature)


def _temperature(held: Held) -> float:
    if isinstance(held.found, Regression):
        raise ConfigError(
            "a temperature scales probabilities of labels; of numbers write method='conformal'"
        )
    probs, labels = _by_row(held)
    return fit_temperature(safe_log(probs), labels)


def _by_row(held: Held) -> tuple[Tensor, Tensor]:
    """Probabilities [N, C] of every element with a label, and the labels [N]."""
    found, target = held.found, held.target
    if isinstance(found, BinaryClassification):
        if not fits(target, found.probs) or not bool(((target == 0) | (target == 1)).all()):
            raise DataError(
                f"labels of shape {tuple(target.shape)} for probabilities of shape "
                f"{tuple(found.probs.shape)}: expected 0 or 1 for each"
            )
        return found.both.flatten(0, -2), target.flatten().long()
    assert isinstance(found, Classification)
    known = is_label(target, held.ignored)
    found.log_prob(torch.where(known, target, 0))  # checks shapes and labels
    probs = found.probs.movedim(1, -1).flatten(0, -2)
    return probs[known.flatten()], target[known].long()


def _scores(held: Held, score: Score | None, randomised: bool, seed: int) -> tuple[Tensor, Score]:
    """How badly every held-out target fits."""
    found = held.found
    if isinstance(found, Regression):
        if score not in (None, "scaled"):
            raise ConfigError(f"score={score!r} is one of labels: of numbers it is 'scaled'")
        return _residuals(found, held.target), "scaled"
    if found.total.numel() != len(found):
        raise ConfigError(
            "conformal sets need one label a row: the elements of a row are not exchangeable with "
            f"those of others; found predictions of shape {tuple(found.total.shape)}"
        )
    chosen: Score = "lac" if score is None else score
    if chosen == "scaled":
        raise ConfigError("score='scaled' is one of numbers: of labels it is 'lac' or 'aps'")
    probs, labels = _by_row(held)
    # Not the numbers that sets of new examples draw from the same seed.
    lot = lots(len(probs), key_seed(seed, "calibrate", 0)) if randomised else None
    return class_scores(probs, chosen, lot).gather(1, labels.unsqueeze(1)).squeeze(1), chosen


def _residuals(found: Regression, target: Tensor) -> Tensor:
    if found.mean.dim() > 2 or not fits(target, found.mean):
        raise ConfigError(
            f"intervals need targets [N] or [N, T]: found predictions {tuple(found.mean.shape)} "
            f"and targets {tuple(target.shape)}"
        )
    error = (target.reshape(found.mean.shape) - found.mean).abs()
    return error / found.std.clamp_min(tiny(found.std))
