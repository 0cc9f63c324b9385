"""Accuracy and the proper scores of class probabilities.

Shapes: ``S`` samples, ``B`` batch, ``C`` classes. Dense ``probs [B, C, H, W]`` with
``target [B, H, W]`` count each position as one example.
"""

import math

import torch
from torch import Tensor

from leanbayes.metrics.check import as_rows, check_count, check_no_nan, check_not_empty, refuse

__all__ = ["accuracy", "brier", "nll", "nll_of_samples"]


def accuracy(probs: Tensor, target: Tensor, top: int = 1) -> Tensor:
    """Fraction of examples whose class is among the ``top`` most probable.

    ``mean_b 1[rank_b < top]``, where ``rank_b`` counts the classes more probable than the true
    one. Among equal probabilities the lower index ranks first, as in ``argmax``.

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices.
        top: how many classes may be named, from 1 to ``C``.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> probs = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]])
        >>> accuracy(probs, torch.tensor([0, 1])).item()
        0.5
        >>> accuracy(probs, torch.tensor([0, 1]), top=2).item()
        1.0
    """
    rows, target = as_rows(probs, target)
    check_count("top", top, low=1, high=rows.shape[1])
    index = target.unsqueeze(1)
    own = rows.gather(1, index)
    earlier = torch.arange(rows.shape[1], device=rows.device) < index
    rank = ((rows > own) | ((rows == own) & earlier)).sum(dim=1)
    return (rank < top).to(torch.float64).mean()


def nll(probs: Tensor, target: Tensor) -> Tensor:
    """Negative log-likelihood, ``-mean_b ln p_b(target_b)``, in nats.

    Infinite as soon as one true class has probability exactly 0; ``nll_of_samples`` works on
    log-probabilities and does not underflow.

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> probs = torch.tensor([[0.5, 0.5], [0.75, 0.25]])
        >>> round(nll(probs, torch.tensor([0, 1])).item(), 4)
        1.0397
    """
    rows, target = as_rows(probs, target)
    # 0.0 - x and not -x: perfect predictions score 0.0, not -0.0.
    return 0.0 - rows.gather(1, target.unsqueeze(1)).log().mean()


def nll_of_samples(sample_log_probs: Tensor) -> Tensor:
    """Negative log-likelihood of the average over posterior samples.

    ``-mean_b (logsumexp_s l_sb - ln S)`` with ``l_sb = ln p(target_b | sample s)``: the ``nll`` of
    the mean probabilities, without leaving the log scale.

    Args:
        sample_log_probs: ``[S, B]`` or ``[S, B, ...]`` log-probabilities of the true classes.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> sample_log_probs = torch.tensor([[0.2, 0.9], [0.4, 0.7]]).log()
        >>> round(nll_of_samples(sample_log_probs).item(), 4)
        0.7136
    """
    _check_log_probs(sample_log_probs.detach())
    log_probs = sample_log_probs.detach().to(torch.float64)
    return math.log(len(log_probs)) - log_probs.logsumexp(dim=0).mean()


def brier(probs: Tensor, target: Tensor) -> Tensor:
    """Brier score, ``mean_b sum_c (p_bc - 1[c = target_b])^2``, from 0 to 2.

    For two classes it is twice the score that looks at the positive class alone.

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.
        target: ``[B]`` or ``[B, ...]`` class indices.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> probs = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
        >>> brier(probs, torch.tensor([0, 0])).item()
        0.25
    """
    rows, target = as_rows(probs, target)
    truth = torch.zeros_like(rows).scatter_(1, target.unsqueeze(1), 1.0)
    return (rows - truth).square().sum(dim=1).mean()


def _check_log_probs(log_probs: Tensor) -> None:
    if log_probs.ndim < 2:
        found = f"sample_log_probs has shape {tuple(log_probs.shape)}"
        refuse(found, "[S, B] or [S, B, ...]", "sample_log_probs.unsqueeze(0) for one sample")
    check_not_empty(log_probs, "sample_log_probs")
    check_no_nan(log_probs, "sample_log_probs")
    highest = float(log_probs.max())
    if highest > 1e-6:
        found = f"sample_log_probs reaches up to {highest:g}"
        expected = "logarithms of probabilities, at most 0 (densities: log_predictive_density)"
        refuse(found, expected, "logits.log_softmax(dim=-1), then gather the target")
