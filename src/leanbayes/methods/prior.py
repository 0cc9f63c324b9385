"""The width of the prior, said directly or as the weight decay of pre-training."""

from __future__ import annotations

import math

from leanbayes.errors import ConfigError


def resolve_prior_std(
    prior_std: float | None, weight_decay: float | None, num_data: int | None
) -> float:
    """One of `prior_std` (default 1) or `weight_decay` with `num_data`.

    A weight decay of lambda on the mean loss is the prior N(0, 1 / (lambda * num_data)).

    Example:
        >>> round(resolve_prior_std(None, 2e-4, 50_000), 4)
        0.3162
    """
    if prior_std is not None and weight_decay is not None:
        raise ConfigError(
            f"found prior_std={prior_std} and weight_decay={weight_decay}: they say the same "
            "thing twice; give one of them"
        )
    if weight_decay is None and num_data is not None:
        raise ConfigError(
            f"num_data={num_data} says nothing without weight_decay, which it turns into a prior: "
            f"write weight_decay=2e-4, num_data={num_data}, or prior_std=..."
        )
    if weight_decay is None:
        return _positive("prior_std", 1.0 if prior_std is None else prior_std)
    if num_data is None:
        raise ConfigError(
            "weight_decay needs num_data, the number of training examples: "
            f"weight_decay={weight_decay}, num_data=50_000"
        )
    decay, data = _positive("weight_decay", weight_decay), _positive("num_data", num_data)
    return 1.0 / math.sqrt(decay * data)


def check_not_negative(**scales: float | None) -> None:
    """Raise on a negative scale, by the name of its field; None is left to a preset."""
    for name, value in scales.items():
        if value is not None and not value >= 0:
            raise ConfigError(f"{name} must be at least 0, found {value!r}")


def check_pairs(**pairs: object) -> None:
    """Raise where a field is not a pair of numbers."""
    for name, pair in pairs.items():
        numbers = isinstance(pair, (tuple, list)) and all(isinstance(x, (int, float)) for x in pair)
        if not numbers or len(pair) != 2:  # type: ignore[arg-type]
            raise ConfigError(f"{name} is a pair of numbers, such as (-6.0, -5.0); found {pair!r}")


def _positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} must be a positive number, found {value!r}")
    return float(value)
