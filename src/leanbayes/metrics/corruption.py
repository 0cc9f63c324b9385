"""Errors on corrupted data relative to those of a reference model (Hendrycks & Dietterich 2019).

Ratios: 1 is the reference; the tables of papers print them in percent. Their reference is AlexNet,
or the vanilla ResNet-18 in Ensemble Model Patching. Shapes: ``K`` corruptions (15 of them in the
papers), ``L`` levels of severity.
"""

import torch
from torch import Tensor

from leanbayes.metrics.check import check_finite, check_not_empty, check_same_shape, refuse

__all__ = [
    "corruption_errors",
    "mean_corruption_error",
    "relative_corruption_errors",
    "relative_mean_corruption_error",
]


def corruption_errors(errors: Tensor, reference: Tensor) -> Tensor:
    """CE of every corruption, ``sum_l E_kl / sum_l E^ref_kl``.

    Args:
        errors: ``[K, L]`` error rates (1 - accuracy), from 0 to 1.
        reference: ``[K, L]`` those of the reference model.

    Returns:
        ``[K]``, float64.

    Example:
        >>> corruption_errors(torch.tensor([[0.25, 0.5]]), torch.tensor([[0.5, 1.0]])).tolist()
        [0.5]
    """
    own, other = _as_table(errors, "errors"), _as_table(reference, "reference")
    check_same_shape(other, "reference", errors=own)
    below = other.sum(dim=1)
    if not bool((below > 0).all()):
        found = f"the reference makes no error on corruption {int(below.argmin())}"
        refuse(found, "errors to compare with", "leave that corruption out of both tables")
    return own.sum(dim=1) / below


def mean_corruption_error(errors: Tensor, reference: Tensor) -> Tensor:
    """mCE, the mean of `corruption_errors` over corruptions.

    Args:
        errors: ``[K, L]`` error rates (1 - accuracy), from 0 to 1.
        reference: ``[K, L]`` those of the reference model.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> errors = torch.tensor([[0.25, 0.5], [0.5, 0.5]])
        >>> mean_corruption_error(errors, torch.tensor([[0.5, 1.0], [0.5, 0.5]])).item()
        0.75
    """
    return corruption_errors(errors, reference).mean()


def relative_corruption_errors(
    errors: Tensor, clean: float | Tensor, reference: Tensor, reference_clean: float | Tensor
) -> Tensor:
    """Relative CE of every corruption, ``sum_l (E_kl - E_clean) / sum_l (E^ref_kl - E^ref_clean)``.

    How much is lost by a corruption, whatever the accuracy without one. It is below 0 where the
    corruption makes the model better.

    Args:
        errors: ``[K, L]`` error rates (1 - accuracy), from 0 to 1.
        clean: error rate without corruption.
        reference: ``[K, L]`` error rates of the reference model.
        reference_clean: its error rate without corruption.

    Returns:
        ``[K]``, float64.

    Example:
        >>> errors, reference = torch.tensor([[0.25, 0.5]]), torch.tensor([[0.5, 1.0]])
        >>> relative_corruption_errors(errors, 0.25, reference, 0.5).tolist()
        [0.5]
    """
    own, other = _as_table(errors, "errors"), _as_table(reference, "reference")
    check_same_shape(other, "reference", errors=own)
    gained = (own - _as_rate(clean, "clean", own)).sum(dim=1)
    below = (other - _as_rate(reference_clean, "reference_clean", other)).sum(dim=1)
    if not bool((below > 0).all()):
        found = f"the reference loses {float(below.min()):g} by corruption {int(below.argmin())}"
        refuse(found, "a loss above 0 by every corruption", "leave it out of both tables")
    return gained / below


def relative_mean_corruption_error(
    errors: Tensor, clean: float | Tensor, reference: Tensor, reference_clean: float | Tensor
) -> Tensor:
    """rmCE, the mean of `relative_corruption_errors` over corruptions.

    Args:
        errors: ``[K, L]`` error rates (1 - accuracy), from 0 to 1.
        clean: error rate without corruption.
        reference: ``[K, L]`` error rates of the reference model.
        reference_clean: its error rate without corruption.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> errors, reference = torch.tensor([[0.25, 0.5]]), torch.tensor([[0.5, 1.0]])
        >>> relative_mean_corruption_error(errors, 0.25, reference, 0.5).item()
        0.5
    """
    return relative_corruption_errors(errors, clean, reference, reference_clean).mean()


def _as_table(errors: Tensor, name: str) -> Tensor:
    if errors.ndim != 2:
        found = f"{name} has shape {tuple(errors.shape)}"
        refuse(found, "[K, L], corruptions by severities", f"{name}.unsqueeze(0) for K = 1")
    check_not_empty(errors, name)
    return _in_range(errors.detach().to(torch.float64), name)


def _as_rate(rate: float | Tensor, name: str, like: Tensor) -> Tensor:
    value = torch.as_tensor(rate, dtype=torch.float64, device=like.device).detach()
    if value.numel() != 1:
        refuse(f"{name} has shape {tuple(value.shape)}", "one number", f"{name}.mean()")
    return _in_range(value.reshape(()), name)


def _in_range(rates: Tensor, name: str) -> Tensor:
    check_finite(rates, name)
    low, high = float(rates.min()), float(rates.max())
    if low < 0 or high > 1:
        found = f"{name} reaches from {low:g} to {high:g}"
        refuse(found, "error rates in [0, 1]", f"{name} / 100 if in percent")
    return rates
