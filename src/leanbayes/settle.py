"""Write the mean network, a member or a draw into the stock parameters of a converted network."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import torch
from torch import Tensor, nn

from leanbayes.layers.base import Host
from leanbayes.surgery import hosts

Holder = tuple[Host, str]
Value = Callable[[Host, str], Tensor | None]  # of a slot; None leaves the layer as it is


def settle(net: nn.Module, member: int | None, value: Value | None = None) -> None:
    """Every posterior once; a tensor that other layers use as it is gets a copy of its own.

    Two layers may share a tensor while only one of them draws it (the embedding and the output of
    a language model): writing into it would change the other layer.

    Args:
        net: A converted network.
        member: Whose locations are written; None for the mean network's.
        value: What a slot is worth instead of its location: a draw, say.
    """
    holders: dict[int, list[Holder]] = defaultdict(list)
    for _, host in hosts(net):
        for slot in host.slots:
            holders[id(host.slots[slot])].append((host, slot))
    held = Counter(id(p) for m in net.modules() for p in m._parameters.values() if p is not None)
    with torch.no_grad():
        for group in holders.values():
            host, slot = group[0]
            read = location(host, slot, member) if value is None else value(host, slot)
            if read is not None:
                _settle(group, held, read)
        for _, host in hosts(net):
            host.settle(member)


def location(host: Host, slot: str, member: int | None) -> Tensor | None:
    """The location of a slot (of a member); None of a mask, which the mean network has not."""
    posterior = host.posterior(slot)
    return None if posterior.by_input else posterior.mean(host.base(slot), member)


def _settle(group: list[Holder], held: Counter[int], value: Tensor) -> None:
    host, slot = group[0]
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
    host.absorb("out_scale" if slot == "out_mask" else slot, factor)
    if slot == "out_mask" and isinstance(host.bias, Tensor):  # it multiplies the bias too
        host.bias.mul_(factor)
