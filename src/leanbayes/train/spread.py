"""How wide the posteriors are: figures for the log, and words when they collapse or explode."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from leanbayes.model import unwrap
from leanbayes.ops import at_least_float32
from leanbayes.posteriors.base import Posterior
from leanbayes.posteriors.estimators import MeanFieldPosterior
from leanbayes.posteriors.factors import FactorBank
from leanbayes.posteriors.gaussian import Gaussian
from leanbayes.posteriors.scale import softplus
from leanbayes.posteriors.shards import local_part
from leanbayes.posteriors.sparse_gaussian import SparseGaussian

SAMPLE = 2**17  # entries in all that a median is taken of: a sort of millions would be seen
TINY, HUGE = 1e-3, 10.0
WARNED = "sigma_warned"


class Scales(NamedTuple):
    """Standard deviations of one posterior before a monotone map: `sigma = map(raw)`."""

    raw: Tensor
    map: Callable[[Tensor], Tensor]
    prior_std: float


@torch.no_grad()
def sigma_statistics(model: nn.Module) -> dict[str, float]:
    """Smallest, median and largest standard deviation of the posteriors, and median over prior.

    `sigma_min` and `sigma_max` are exact; medians are taken of evenly spaced entries, 2^17 in all
    (of every entry in smaller networks). One pass over the scales and one wait for a GPU, so it is
    for log lines, not for steps. Under FSDP2 the figures are of this process's shards and nothing
    is sent. Empty where no posterior has a scale that is trained.

    Example:
        >>> import leanbayes as lb
        >>> model = lb.bayesianize(nn.Linear(4, 3), lb.MeanField(init_std=0.5, prior_std=2.0))
        >>> {k: round(v, 3) for k, v in sigma_statistics(model).items()}
        {'sigma_min': 0.5, 'sigma_median': 0.5, 'sigma_max': 0.5, 'sigma_to_prior': 0.25}
    """
    found = [scales_of(q, base) for _, _, q, base in unwrap(model).posteriors()]
    scales = [s for s in found if s is not None and s.raw.numel() > 0]
    if not scales:
        return {}
    stride = -(-sum(s.raw.numel() for s in scales) // SAMPLE)
    ends = torch.cat([s.map(torch.stack(torch.aminmax(s.raw))) for s in scales])
    parts = [s.map(s.raw.flatten()[::stride]) for s in scales]
    relative = [part / s.prior_std for part, s in zip(parts, scales, strict=True)]
    medians = torch.cat(parts).median(), torch.cat(relative).median()
    low, mid, high, ratio = torch.stack([ends.min(), medians[0], ends.max(), medians[1]]).tolist()
    return {"sigma_min": low, "sigma_median": mid, "sigma_max": high, "sigma_to_prior": ratio}


def scales_of(posterior: Posterior, base: Tensor) -> Scales | None:
    """The trained scales of a posterior; None where it has none (points, masks, measured laws)."""
    prior_std = getattr(posterior, "prior_std", None) or 1.0
    match posterior:
        case Gaussian():
            raw = at_least_float32(local_part(posterior.log_std))
            if posterior.random is not None:
                raw = raw[local_part(posterior.random).flatten() != 0]
            return Scales(raw, torch.exp, prior_std)
        case SparseGaussian() | FactorBank():
            return Scales(at_least_float32(local_part(posterior.rho)), softplus, prior_std)
        case MeanFieldPosterior():
            std = at_least_float32(local_part(posterior.std(base)))
            return Scales(std, torch.clone, prior_std)
    return None


def warn_posterior(start: Mapping[str, float], model: nn.Module) -> dict[str, float]:
    """Warn, once, where the scales have collapsed or exploded since the start.

    Collapsed: the median is below 1e-3 of its start, or below 1e-3 of the prior's and of a tenth of
    its start (a posterior that starts narrow is a choice). Exploded: the median is above 10 times
    the prior's.

    Args:
        start: `sigma_statistics` at the start of the run, or what the last call gave.
        model: The model as it is now.

    Returns:
        What the next call takes as its `start`.
    """
    if not start or WARNED in start:
        return dict(start)
    words = posterior_words(start, sigma_statistics(model))
    if not words:
        return dict(start)
    warnings.warn(words, stacklevel=2)
    return {**start, WARNED: 1.0}


def posterior_words(start: Mapping[str, float], now: Mapping[str, float]) -> str:
    """What is wrong with the scales and what to change; empty where nothing is."""
    before, median, ratio = start["sigma_median"], now["sigma_median"], now["sigma_to_prior"]
    fallen = median / before if before > 0 else 1.0
    if fallen < TINY or (ratio < TINY and fallen < 0.1 and start["sigma_to_prior"] >= TINY):
        return (
            f"the posterior has collapsed: the median of its standard deviations has fallen from "
            f"{before:.3g} to {median:.3g} ({ratio:.3g} of the prior's), so draws hardly differ "
            "and predictions carry little model uncertainty. Check that num_data is the number of "
            "training data; then try a smaller posterior_lr or a larger kl_weight"
        )
    if ratio > HUGE:
        return (
            f"the posterior has exploded: the median of its standard deviations is {median:.3g}, "
            f"{ratio:.3g} times that of the prior (it started at {before:.3g}), so draws are "
            "mostly noise. Try a smaller posterior_lr, clip=1.0 or a smaller init_std"
        )
    return ""
