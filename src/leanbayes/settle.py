"""Write the mean network, or a member, into the stock parameters of a converted network."""

from __future__ import annotations

from collections import Counter, defaultdict

import torch
from torch import Tensor, nn

from leanbayes.layers.base import Host
from leanbayes.surgery import hosts

Holder = tuple[Host, str]


def settle(net: nn.Module, member: int | None) -> None:
    """Every posterior once; a tensor that other layers use as it is gets a copy of its own.

    Two layers may share a tensor while only one of them draws it (the embedding and the output of
    a language model): writing into it would change the other layer.
    """
    holders: dict[int, list[Holder]] = defaultdict(list)
    for _, host in hosts(net):
        for slot in host.slots:
            holders[id(host.slots[slot])].append((host, slot))
    held = Counter(id(p) for m in net.modules() for p in m._parameters.values() if p is not None)
    with torch.no_grad():
        for group in holders.values():
            _settle(group, held, member)
        for _, host in hosts(net):
            host.settle(member)


def _settle(group: list[Holder], held: Counter[int], member: int | None) -> None:
    host, slot = group[0]
    posterior = host.posterior(slot)
    if posterior.by_input:  # the mean network has no masks
        return
    value = posterior.mean(host.base(slot), member)
    if not host.is_tensor(slot):
        _absorb(host, slot, value, held)
    elif not torch.equal(value, host.base(slot)):
        _write(group, value, held)


def _write(group: list[Holder], value: Tensor, held: Counter[int]) -> None:
    base = group[0][0].base(group[0][1])
    if held[id(base)] == len(group):
        base.copy_(value)
        return
    own = nn.Parameter(value.clone(), requires_grad=base.requires_grad)
    for host, slot in group:
        host._parameters[slot] = own


def _absorb(host: Host, slot: str, factor: Tensor, held: Counter[int]) -> None:
    if bool((factor == 1).all()):
        return
    for name, tensor in host._parameters.items():
        if tensor is not None and tensor.dim() > 1 and held[id(tensor)] > 1:
            host._parameters[name] = nn.Parameter(tensor.clone(), tensor.requires_grad)
    host.absorb(slot, factor)
