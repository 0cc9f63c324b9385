"""How random every layer of a model is: numbers, scales, and the part that was selected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from leanbayes.layers.base import Host, original_name
from leanbayes.model import unwrap
from leanbayes.posteriors.base import Posterior

LOW, HIGH = 0.05, 0.95  # quantiles
Row = dict[str, Any]


class _Spread(NamedTuple):
    """Standard deviations of the entries of one slot, their location, and what they count."""

    std: Tensor
    mean: Tensor
    random: int


@torch.no_grad()
def layer_map(model: nn.Module) -> list[Row]:
    """One row a layer with parameters or masks, in the order of the network, as plain data.

    `random` counts the entries whose law is no point: entries of weights and biases (of `Partial`
    the selected ones), or channel factors where these are random (`Implicit`, `RankOne`); a mask of
    activations has as many as its input and counts 0. `share` is random over the layer's own
    parameters. `std` has the 5 %, 50 % and 95 % quantiles of the standard deviations of these
    entries; of mixtures and ensembles with the spread between the members; of factors that of the
    factors; a Cauchy has its scale instead. `relative` is the median over the root mean square of
    the tensors (or of the mean factors). Both are None where nothing is random.

    Cost: the standard deviations of one layer at a time, sorted.

    Returns:
        `name`, `kind`, `parameters`, `random`, `share`, `std` {low, median, high}, `relative`.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField(init_std=0.1))
        >>> row = lb.layer_map(model)[0]
        >>> row["kind"], row["random"], row["share"], round(row["std"]["median"], 4)
        ('Linear', 15, 1.0, 0.1)
    """
    net = unwrap(model).net
    inside = {m for p in net.modules() if isinstance(p, Posterior) for m in p.modules()}
    rows = [
        _row(name or "(root)", module)
        for name, module in net.named_modules()
        if module not in inside and not isinstance(module, nn.ParameterList)
    ]
    return [row for row in rows if row["parameters"] or row["std"]]


def _row(name: str, module: nn.Module) -> Row:
    parameters = sum(p.numel() for p in module.parameters(recurse=False))
    found = _spreads(module) if isinstance(module, Host) else []
    random = sum(slot.random for slot in found)
    return {
        "name": name,
        "kind": original_name(module),
        "parameters": parameters,
        "random": random,
        "share": random / parameters if parameters else 0.0,
        **_scales(found),
    }


def _spreads(host: Host) -> list[_Spread]:
    """Those of the factors where there are random ones, else those of the tensors."""
    slots = [slot for slot in host.slots if slot != "statistics"]
    found = {slot: _spread(host, slot) for slot in slots}
    factors = [s for slot, s in found.items() if not host.is_tensor(slot) and bool(s.std.any())]
    return factors or [s for slot, s in found.items() if host.is_tensor(slot)]


def _spread(host: Host, slot: str) -> _Spread:
    posterior, base = host.posterior(slot), host.base(slot)
    std = posterior.spread(base).double().cpu().flatten()
    mean = posterior.mean(base).double().cpu().flatten()
    return _Spread(std, mean, 0 if posterior.by_input else int((std > 0).sum()))


def _scales(found: Sequence[_Spread]) -> Row:
    every = torch.cat([slot.std for slot in found]) if found else torch.empty(0)
    std = every[every > 0].sort().values
    if not len(std):
        return {"std": None, "relative": None}
    low, median, high = (_quantile(std, q) for q in (LOW, 0.5, HIGH))
    size = float(torch.cat([slot.mean for slot in found]).square().mean().sqrt())
    relative = median / size if size else None
    return {"std": {"low": low, "median": median, "high": high}, "relative": relative}


def _quantile(ordered: Tensor, q: float) -> float:
    """With straight lines between neighbours; torch's own ends at 16 million numbers."""
    place = q * (len(ordered) - 1)
    below = int(place)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return low + (place - below) * (high - low)
