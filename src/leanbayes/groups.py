"""Parameter groups: separate learning rates, and weight decay only where no KL regularises."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from leanbayes.model import reshard, unwrap
from leanbayes.surgery import posteriors


def param_groups(
    model: nn.Module,
    *,
    lr: float,
    posterior_lr: float | None = None,
    weight_decay: float = 0.0,
    likelihood: nn.Module | None = None,
) -> list[dict[str, Any]]:
    """Parameter groups for any torch optimiser: two learning rates, and decay where it belongs.

    - `base`: parameters that no KL acts on; rate `lr`, with weight decay.
    - `mean`: means of posteriors; rate `lr`. Their prior is in the KL: a decay would count twice.
    - `posterior`: what the method added; rate `posterior_lr`, without decay.
    - `bank`: the copies of a parameter among which a draw picks, your parameter being the first;
      rate `posterior_lr`, and the decay times the probability of a copy. With `lb.Patching` the
      KL is their decay already: write `weight_decay=0`, or it counts twice.
    - `likelihood`: learnt noise; rate `lr`.

    Args:
        model: The BayesianModel or its wrapper.
        lr: Learning rate of the network's own parameters.
        posterior_lr: Learning rate of what the method added; `lr` if None.
        weight_decay: Decay of `base`, and of `bank` as above.
        likelihood: A likelihood with parameters of its own; by default the one kept with the
            model.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField())
        >>> [
        ...     (g["name"], g["lr"], g["weight_decay"])
        ...     for g in lb.param_groups(model, lr=1e-4, posterior_lr=1e-3, weight_decay=2e-4)
        ... ]
        [('mean', 0.0001, 0.0), ('posterior', 0.001, 0.0)]
    """
    inner = unwrap(model)
    reshard(inner)
    fast = lr if posterior_lr is None else posterior_lr
    rates = {"base": lr, "mean": lr, "posterior": fast, "bank": fast, "likelihood": lr}
    sorted_in = _assigned(inner.net)
    likelihood = inner.likelihood if likelihood is None else likelihood
    if likelihood is not None:
        sorted_in.update({id(p): (Kind("likelihood"), p) for p in likelihood.parameters()})
    groups = []
    kinds = {kind for kind, _ in sorted_in.values()}
    for kind in sorted(kinds, key=lambda kind: (list(rates).index(kind.name), -kind.share)):
        params = [p for of, p in sorted_in.values() if of == kind and p.requires_grad]
        decay = weight_decay * kind.share
        settings = {"lr": rates[kind.name], "weight_decay": decay, "name": kind.name}
        if params:
            groups.append({"params": params, **settings})
    return groups


class Kind(NamedTuple):
    """A group by name; `share` is the part of the weight decay that it gets."""

    name: str
    share: float = 0.0


def _assigned(net: nn.Module) -> dict[int, tuple[Kind, nn.Parameter]]:
    """Every parameter once, by identity, with the group it belongs to."""
    assigned = {id(p): (Kind("base", 1), p) for p in net.parameters()}
    for _, _, posterior, base in posteriors(net):
        share = posterior.decay_share
        own = Kind("bank", share) if share else Kind("posterior")
        for p in posterior.parameters():
            assigned[id(p)] = (own, p)
        if isinstance(base, nn.Parameter):
            if posterior.owns_base:
                assigned[id(base)] = (own, base)
            elif posterior.regularises_base:
                assigned[id(base)] = (Kind("mean"), base)
    return assigned
