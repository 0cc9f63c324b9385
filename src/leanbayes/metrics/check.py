"""What every metric asks of its arguments, and the error when it is not met.

Shapes: ``B`` batch, ``C`` classes, ``N`` rows after flattening.
"""

from typing import NoReturn

import torch
from torch import Tensor

from leanbayes.errors import DataError

__all__ = [
    "as_finite",
    "as_rows",
    "as_samples",
    "as_scores",
    "as_variance",
    "check_count",
    "check_finite",
    "check_mixture",
    "check_no_nan",
    "check_not_empty",
    "check_same_shape",
    "refuse",
]

ROW_SUM_TOLERANCE = 1e-3
RANGE_TOLERANCE = 1e-6


def refuse(found: str, expected: str, write: str) -> NoReturn:
    """Raise the error of a metric: what was found, what was expected, what to write.

    Example:
        >>> refuse("bins = 0", "at least 1", "bins=15")
        Traceback (most recent call last):
        leanbayes.errors.DataError: bins = 0; expected at least 1. Write: bins=15
    """
    raise DataError(f"{found}; expected {expected}. Write: {write}")


def as_rows(probs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Validate class probabilities and targets, and flatten both to rows.

    Args:
        probs: ``[B, C]``, or dense ``[B, C, ...]`` such as ``[B, C, H, W]``.
        target: ``[B]``, or ``[B, ...]`` with the trailing dimensions of ``probs``.

    Returns:
        Probabilities ``[N, C]`` in float64, detached, and class indices ``[N]`` in int64.

    Example:
        >>> rows, target = as_rows(torch.full((2, 4, 3, 3), 0.25), torch.ones(2, 3, 3).long())
        >>> tuple(rows.shape), tuple(target.shape)
        ((18, 4), (18,))
    """
    _check_layout(probs, target)
    _check_probabilities(probs.detach())
    classes = probs.shape[1]
    _check_classes(target, classes)
    rows = probs.detach().movedim(1, -1).reshape(-1, classes)
    return rows.to(torch.float64).clamp(0.0, 1.0), target.reshape(-1).long()


def as_samples(sample_probs: Tensor) -> Tensor:
    """Validate the class probabilities of samples, and flatten the examples.

    Args:
        sample_probs: ``[S, B, C]``, or dense ``[S, B, C, ...]``.

    Returns:
        Probabilities ``[S, N, C]`` in float64, detached.

    Example:
        >>> tuple(as_samples(torch.full((5, 2, 4, 3, 3), 0.25)).shape)
        (5, 18, 4)
    """
    if sample_probs.ndim < 3:
        found = f"sample_probs has shape {tuple(sample_probs.shape)}"
        refuse(found, "[S, B, C] or [S, B, C, ...]", "probs.unsqueeze(0) for one sample")
    check_not_empty(sample_probs, "sample_probs")
    probs = sample_probs.detach()
    _check_probabilities(probs.flatten(0, 1))
    rows = probs.movedim(2, -1).flatten(1, -2)
    return rows.to(torch.float64).clamp(0.0, 1.0)


def as_scores(scores: Tensor, name: str) -> Tensor:
    """Return OOD scores as one float64 row; infinities may stay, NaN has no rank.

    Example:
        >>> as_scores(torch.tensor([[0.5, float("inf")]]), "scores_in")
        tensor([0.5000,    inf], dtype=torch.float64)
    """
    check_not_empty(scores, name)
    check_no_nan(scores, name)
    return scores.detach().reshape(-1).to(torch.float64).contiguous()


def check_count(name: str, value: int, low: int, high: int | None = None) -> None:
    """Refuse an integer setting outside ``low..high``."""
    if value < low or (high is not None and value > high):
        limit = f"at least {low}" if high is None else f"{low} to {high}"
        refuse(f"{name} = {value}", limit, f"{name}={low}")


def check_not_empty(values: Tensor, name: str) -> None:
    """Refuse a tensor without elements: a mean over nothing has no value."""
    if values.numel() == 0:
        shape = tuple(values.shape)
        refuse(f"{name} is empty, shape {shape}", "one element or more", f"if len({name}): ...")


def check_finite(values: Tensor, name: str) -> None:
    """Refuse NaN and infinities."""
    bad = int((~torch.isfinite(values)).sum())
    if bad:
        found = f"{name} holds {bad} of {values.numel()} values that are NaN or infinite"
        refuse(found, "finite numbers", f"assert {name}.isfinite().all() where it is computed")


def check_no_nan(values: Tensor, name: str) -> None:
    """Refuse NaN, and let infinities pass."""
    bad = int(torch.isnan(values).sum())
    if bad:
        found = f"{name} holds {bad} of {values.numel()} values that are NaN"
        refuse(found, "numbers", f"assert not {name}.isnan().any() where it is computed")


def check_same_shape(reference: Tensor, name: str, **others: Tensor) -> None:
    """Refuse tensors which torch would silently broadcast, as ``[B, 1]`` against ``[B]``."""
    for other, values in others.items():
        if values.shape != reference.shape:
            found = f"{other} has shape {tuple(values.shape)}"
            expected = f"the shape of {name}, {tuple(reference.shape)}"
            refuse(found, expected, f"{other}.reshape({name}.shape), if the elements match")


def check_mixture(means: Tensor, target: Tensor, name: str = "means") -> None:
    """Refuse anything but one value a sample, ``[S, ...]``, for targets ``[...]``."""
    if means.ndim == 0 or means.shape[1:] != target.shape:
        found = f"{name} has shape {tuple(means.shape)} and target {tuple(target.shape)}"
        write = f"{name}.unsqueeze(0) for one sample, target.unsqueeze(-1) for T = 1"
        refuse(found, f"{name} [S, *target.shape]", write)
    check_not_empty(means, name)


def as_variance(noise_variance: float | Tensor, means: Tensor) -> Tensor:
    """Return a variance above 0 in float64 which broadcasts to ``means``."""
    variance = torch.as_tensor(noise_variance, dtype=torch.float64, device=means.device).detach()
    check_finite(variance, "noise_variance")
    if not _broadcasts(variance, means):
        found = f"noise_variance has shape {tuple(variance.shape)}"
        expected = f"one that broadcasts to means, {tuple(means.shape)}"
        refuse(found, expected, "noise_variance[:, None] for one variance a row of [B, T]")
    if not bool((variance > 0).all()):
        found = f"noise_variance reaches down to {float(variance.min()):g}"
        refuse(found, "a variance above 0", "noise_variance=std**2, or log_std.mul(2).exp()")
    return variance


def _broadcasts(values: Tensor, reference: Tensor) -> bool:
    sizes = zip(reversed(values.shape), reversed(reference.shape), strict=False)
    return values.ndim <= reference.ndim and all(size in (1, full) for size, full in sizes)


def as_finite(values: Tensor, name: str) -> Tensor:
    """Return finite numbers in float64, detached."""
    check_finite(values, name)
    return values.detach().to(torch.float64)


def _check_layout(probs: Tensor, target: Tensor) -> None:
    if not isinstance(probs, Tensor):
        refuse(f"probs is a {type(probs).__name__}", "a tensor", "p.probs of a prediction p")
    shape = tuple(probs.shape)
    if probs.ndim < 2:
        found, write = f"probs has shape {shape}", "torch.stack([1 - p, p], dim=1) if binary"
        refuse(found, "[B, C] or [B, C, ...]", write)
    check_not_empty(probs, "probs")
    expected = (shape[0], *shape[2:])
    if tuple(target.shape) != expected:
        found = f"target has shape {tuple(target.shape)} and probs {shape}"
        write = "target.argmax(dim=1) if it is one-hot, probs.movedim(-1, 1) if classes come last"
        if target.shape == probs.shape:
            write += ", torch.stack([1 - probs, probs], dim=1) if each is a yes or no"
        refuse(found, f"one class a row, target of shape {expected}", write)


def _check_probabilities(probs: Tensor) -> None:
    if not probs.is_floating_point():
        refuse(f"probs has dtype {probs.dtype}", "floating point", "logits.softmax(dim=1)")
    check_finite(probs, "probs")
    # bf16 keeps 8 bits: rounding alone moves a row sum by up to 0.004.
    rounding = torch.finfo(probs.dtype).eps
    low, high = float(probs.min()), float(probs.max())
    slack = max(RANGE_TOLERANCE, rounding)
    if low < -slack or high > 1.0 + slack:
        found = f"probs reaches from {low:g} to {high:g}"
        refuse(found, "probabilities in [0, 1], never logits", "logits.softmax(dim=1)")
    totals = probs.sum(dim=1, dtype=torch.float64).reshape(-1)
    worst = float(totals[(totals - 1.0).abs().argmax()])
    tolerance = max(ROW_SUM_TOLERANCE, rounding)
    if abs(worst - 1.0) > tolerance:
        expected = f"1 to within {tolerance:g}, summed over classes (dim 1)"
        refuse(f"a row of probs sums to {worst:g}", expected, "logits.float().softmax(dim=1)")


def _check_classes(target: Tensor, classes: int) -> None:
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        refuse(f"target has dtype {target.dtype}", "integer class indices", "target.long()")
    low, high = int(target.min()), int(target.max())
    if low < 0 or high >= classes:
        found = f"target reaches from {low} to {high}"
        expected = f"classes 0 to {classes - 1}, since probs has {classes}"
        refuse(found, expected, "keep = target >= 0 and pass probs[keep], target[keep]")
