"""How much the samples or members of a model differ in their labels.

`lb.diversity` gives these figures of a model, with KL and distance of the members beside them.
Shapes: ``S`` samples, ``B`` batch, ``C`` classes.
"""

import torch
from torch import Tensor

from leanbayes.metrics.check import as_rows, as_samples, check_count

__all__ = ["disagreement", "label_disagreement", "normalised_disagreement"]


def label_disagreement(labels: Tensor) -> Tensor:
    """Share of elements on which two members differ, averaged over pairs, of labels ``[S, N]``.

    Cost: ``S^2 N`` comparisons.

    Example:
        >>> label_disagreement(torch.tensor([[0, 1], [0, 2], [0, 2]])).item()
        0.3333333333333333
    """
    count = len(labels)
    check_count("samples", count, low=2)
    differ = sum((row != labels).sum() for row in labels)
    return torch.as_tensor(differ, dtype=torch.float64) / (count * (count - 1) * labels[0].numel())


def disagreement(sample_probs: Tensor) -> Tensor:
    """Disagreement of samples, ``mean_{s<t} mean_b 1[label_s != label_t]``.

    Args:
        sample_probs: ``[S, B, C]`` or ``[S, B, C, ...]`` probabilities, ``S`` at least 2.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> sample_probs = torch.tensor([[[0.9, 0.1], [0.6, 0.4]], [[0.8, 0.2], [0.3, 0.7]]])
        >>> disagreement(sample_probs).item()
        0.5
    """
    return label_disagreement(as_samples(sample_probs).argmax(dim=2))


def normalised_disagreement(sample_probs: Tensor, target: Tensor) -> Tensor:
    """`disagreement` over ``1 - accuracy``, the accuracy of a sample averaged over samples.

    What the errors of the samples allow is taken out, as in Rank-1 BNNs (Dusenberry et al. 2020,
    section 3.5, after Fort et al. 2019). 0 where no label differs, whatever the accuracy.

    Args:
        sample_probs: ``[S, B, C]`` or ``[S, B, C, ...]`` probabilities, ``S`` at least 2.
        target: ``[B]`` or ``[B, ...]`` class indices.

    Returns:
        0-dim float64 tensor.

    Example:
        >>> sample_probs = torch.tensor([[[0.9, 0.1], [0.6, 0.4]], [[0.8, 0.2], [0.3, 0.7]]])
        >>> normalised_disagreement(sample_probs, torch.tensor([0, 0])).item()
        2.0
    """
    labels = as_samples(sample_probs).argmax(dim=2)
    _, target = as_rows(sample_probs[0], target)
    found = label_disagreement(labels)
    wrong = (labels != target).to(torch.float64).mean()
    # Samples that differ are not all right, so that this divides by 0 only where found is 0 too.
    return found / wrong if found > 0 else found
