"""Uncertainty of one example each, the scores that detection and rejection rank by.

``entropy(mean_s p_s) = mean_s entropy(p_s) + mutual_information(p)``: total, aleatoric, epistemic.
``lb.predict`` gives the three without keeping samples. Shapes: ``S`` samples, ``B`` batch, ``C``
classes.
"""

import torch
from torch import Tensor

from leanbayes.metrics.check import as_samples, refuse

__all__ = ["entropy", "mutual_information"]


def entropy(probs: Tensor) -> Tensor:
    """Entropy of the class probabilities of every example, ``-sum_c p_c ln p_c``, in nats.

    Args:
        probs: ``[B, C]`` or ``[B, C, ...]`` probabilities.

    Returns:
        ``[B]`` or ``[B, ...]``, float64.

    Example:
        >>> entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]])).tolist()
        [0.6931471805599453, 0.0]
    """
    if probs.ndim < 2:
        write = "torch.stack([1 - p, p], dim=1) if binary"
        refuse(f"probs has shape {tuple(probs.shape)}", "[B, C] or [B, C, ...]", write)
    rows = as_samples(probs.unsqueeze(0))[0]
    return _entropies(rows).reshape(probs.shape[0], *probs.shape[2:])


def mutual_information(sample_probs: Tensor) -> Tensor:
    """Mutual information of label and weights, ``H(mean_s p_s) - mean_s H(p_s)``, in nats.

    From 0, where all samples agree, to the smaller of ``ln S`` and ``ln C``. Rounding below 0 is
    cut off.

    Args:
        sample_probs: ``[S, B, C]`` or ``[S, B, C, ...]`` probabilities of every sample.

    Returns:
        ``[B]`` or ``[B, ...]``, float64.

    Example:
        >>> certain = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
        >>> mutual_information(certain).tolist()
        [0.6931471805599453]
    """
    rows = as_samples(sample_probs)
    found = _entropies(rows.mean(dim=0)) - _entropies(rows).mean(dim=0)
    shape = sample_probs.shape
    return found.clamp_min(0).reshape(shape[1], *shape[3:])


def _entropies(rows: Tensor) -> Tensor:
    terms: Tensor = torch.special.entr(rows)
    return terms.sum(dim=-1)
