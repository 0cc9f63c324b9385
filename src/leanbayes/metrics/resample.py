"""Confidence intervals by drawing the examples again, with replacement (Efron 1979).

The interval is that of the percentiles. The draws come from a generator on the CPU: one seed gives
one interval on every device. Own code: torchmetrics' ``BootStrapper`` keeps a copy of a metric a
draw and cannot be seeded by itself.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from leanbayes.metrics.check import as_finite, check_count, check_not_empty, refuse

__all__ = ["Interval", "bootstrap", "bootstrap_mean"]

CHUNK = 2**22  # indices in memory at a time


@dataclass(frozen=True, eq=False)
class Interval:
    """A figure with its confidence interval.

    Attributes:
        value: of the examples themselves; 0-dim float64.
        low: lower end of the interval.
        high: upper end of the interval.
    """

    value: Tensor
    low: Tensor
    high: Tensor


def bootstrap_mean(
    values: Tensor, draws: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Interval of a mean over examples: accuracy, NLL, Brier score and their like.

    Vectorised; cost ``draws N``.

    Args:
        values: ``[N]``, one an example, such as ``probs.argmax(1) == target``.
        draws: how often ``N`` examples are drawn.
        level: probability that the interval is to cover.
        seed: of the draws.

    Example:
        >>> found = bootstrap_mean(torch.tensor([0.0, 1.0]).repeat(50))
        >>> found.value.item(), round(found.low.item(), 2), round(found.high.item(), 2)
        (0.5, 0.4, 0.6)
    """
    if values.ndim != 1:
        refuse(f"values has shape {tuple(values.shape)}", "[N]", "values.flatten()")
    _check(values, draws, level)
    values = as_finite(values, "values")
    means = [values[rows].mean(dim=1) for rows in _indices(len(values), draws, seed, values.device)]
    return _interval(values.mean(), torch.cat(means), level)


def bootstrap(
    metric: Callable[..., Tensor],
    *tensors: Tensor,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    together: bool = True,
) -> Interval:
    """Interval of any metric of examples.

    Cost: ``draws`` calls of the metric; for a mean of examples `bootstrap_mean` is faster.

    Args:
        metric: such as `ece`, called with the drawn examples.
        tensors: its arguments, examples along their first dimension.
        draws: how often the examples are drawn.
        level: probability that the interval is to cover.
        seed: of the draws.
        together: True draws the same rows of all tensors, as for ``ece(probs, target)``; False
            draws rows of each on its own, as for ``auroc(scores_in, scores_out)``.

    Example:
        >>> from leanbayes.metrics import auroc
        >>> scores_in, scores_out = torch.arange(50.0), torch.arange(50.0) + 25
        >>> found = bootstrap(auroc, scores_in, scores_out, draws=200, together=False)
        >>> bool(found.low < found.value) and bool(found.value < found.high)
        True
    """
    _check_tensors(tensors, together)
    _check(tensors[0], draws, level)
    generator_seeds = [seed] * len(tensors) if together else [seed + k for k in range(len(tensors))]
    streams = [
        (row for rows in _indices(len(t), draws, own, t.device) for row in rows)
        for t, own in zip(tensors, generator_seeds, strict=True)
    ]
    found = [
        metric(*(t[rows] for t, rows in zip(tensors, drawn, strict=True)))
        for drawn in zip(*streams, strict=True)
    ]
    return _interval(metric(*tensors), torch.stack(found), level)


def _indices(count: int, draws: int, seed: int, device: torch.device) -> Iterator[Tensor]:
    """Rows of all draws, some draws at a time, ``[draws of a part, count]``."""
    generator = torch.Generator().manual_seed(seed)
    part = max(CHUNK // count, 1)
    for start in range(0, draws, part):
        shape = (min(part, draws - start), count)
        yield torch.randint(count, shape, generator=generator).to(device)


def _interval(value: Tensor, drawn: Tensor, level: float) -> Interval:
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = drawn.to(torch.float64).quantile(ends.to(drawn.device)).unbind()
    return Interval(value, low, high)


def _check(values: Tensor, draws: int, level: float) -> None:
    check_not_empty(values, "values")
    check_count("draws", draws, low=1)
    if not 0 < level < 1:
        refuse(f"level = {level}", "between 0 and 1", "level=0.95")


def _check_tensors(tensors: tuple[Tensor, ...], together: bool) -> None:
    if not tensors:
        refuse("no tensors", "the arguments of the metric", "bootstrap(ece, probs, target)")
    lengths = [len(tensor) for tensor in tensors]
    if together and len(set(lengths)) > 1:
        expected = "as many examples in every tensor"
        refuse(f"tensors of {lengths} rows", expected, "together=False if they are drawn apart")
