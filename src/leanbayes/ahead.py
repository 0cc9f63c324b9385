"""Draw the short vectors of a whole network in one go, on entry to a pass.

A rank-1 ResNet holds dozens of vectors of a few hundred numbers: drawing each by itself costs some
twenty small kernels a layer, forward and backward, whatever their size. Joined, they cost as many
for the whole network.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from leanbayes.forms import Ask, Form
from leanbayes.noise import KeyedNoise
from leanbayes.plan import Drawn, Granularity, Scope
from leanbayes.posteriors.base import Posterior

PLAIN = Ask()
Sites = Sequence[tuple[Posterior, Tensor]]


def in_groups(sites: Sites) -> list[Sites]:
    """Posteriors whose predicted samples can be drawn in one go, beside one another."""
    alike: dict[Hashable, list[tuple[Posterior, Tensor]]] = defaultdict(list)
    for posterior, base in sites:
        kind = posterior.joins_keyed(base)
        known = posterior.key if kind is None else (type(posterior), kind, base.dtype, base.device)
        alike[known].append((posterior, base))
    return list(alike.values())


def drawn_by_key(groups: Sequence[Sites], scope: Scope) -> dict[str, Form]:
    """Forms by key of one predicted sample, with the numbers that every posterior has alone."""
    source, forms = scope.plan.noise, dict[str, Form]()
    together = isinstance(source, KeyedNoise) and not torch.is_grad_enabled()
    for group in groups:
        if together and len(group) > 1 and isinstance(source, KeyedNoise):
            values = type(group[0][0]).predict_together(group, scope, source)
        else:
            values = [q.form(base, scope, PLAIN) for q, base in group]
        forms |= {q.key: form for (q, _), form in zip(group, values, strict=True)}
    return forms


def drawn_together(sites: Sites, scope: Scope) -> dict[str, Form]:
    """Forms by key in a training pass, of posteriors that can be joined with their kind."""
    alike: dict[Hashable, list[tuple[Posterior, Tensor]]] = defaultdict(list)
    for posterior, base in sites:
        kind = posterior.joins(base, scope)
        if kind is not None:
            alike[type(posterior), kind, base.dtype, base.device].append((posterior, base))
    forms: dict[str, Form] = {}
    for group in alike.values():
        if len(group) > 1:
            values = type(group[0][0]).draw_together(group, scope)
            forms |= {q.key: form for (q, _), form in zip(group, values, strict=True)}
    return forms


def shared_noise(sites: Sequence[tuple[Posterior, Tensor, Ask]], scope: Scope) -> dict[str, Drawn]:
    """Noise by key of tensors that are used more than once; single numbers in one call."""
    noise: dict[str, Drawn] = {}
    single: dict[tuple[Granularity, torch.device], list[str]] = defaultdict(list)
    for posterior, base, ask in sites:
        if posterior.single_number:
            single[posterior.granularity, base.device].append(posterior.noise_key)
        else:
            noise[posterior.noise_key] = posterior.drawn(base, scope, ask)
    for (granularity, device), keys in single.items():
        like = torch.empty((), device=device, dtype=torch.float32)
        numbers = scope.source.uniform("", scope.draws(granularity), (len(keys),), like)
        noise |= {key: Drawn(n) for key, n in zip(keys, numbers.unbind(1), strict=True)}
    return noise


def may_join(scope: Scope) -> bool:
    """True in a pass that draws from the global generator.

    Not while uses are noted: an output must depend on each tensor by its own layer alone.
    """
    return not scope.plan.mean and scope.plan.noise is None and scope.trace is None
