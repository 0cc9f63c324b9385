"""The members of a model, or draws of it, as plain networks with the weights that they apply."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from leanbayes.convert import collapse
from leanbayes.errors import ConfigError
from leanbayes.forms import Ask, Shared
from leanbayes.layers.base import Host
from leanbayes.likelihood import tensor_of
from leanbayes.model import BayesianModel
from leanbayes.modes import evaluating
from leanbayes.noise import KeyedNoise
from leanbayes.plan import Plan, Scope, call
from leanbayes.settle import settle
from leanbayes.surgery import hosts, revert

DRAWS = 8  # of a method without members


@dataclass(frozen=True)
class Place:
    """A plain network and what it is called."""

    label: str
    net: nn.Module


def places(
    model: BayesianModel,
    members: Sequence[int] | None,
    draws: int | None,
    seed: int,
    example: Any,
) -> list[Place]:
    """Locations of the members; where draws are asked for, or there is no index, draws.

    Args:
        model: The model.
        members: Which ones; all if None.
        draws: Of every member, or of the model where it has none.
        seed: Key of the draws, as in `lb.predict`: draw t is its sample t.
        example: Inputs on which a drawn network must do what the model does.
    """
    count = model.method.index_members
    chosen = _chosen(model, members)
    if count and draws is None:
        return [Place(f"member {k}", collapse(model, k).eval()) for k in chosen]
    wanted = DRAWS if draws is None else draws
    if wanted < 1:
        raise ConfigError(f"draws must be at least 1, found {draws!r}")
    if not count:
        return [Place(f"draw {t}", _drawn(model, t, seed, example)) for t in range(wanted)]
    return [
        Place(f"member {k}, draw {d}", _drawn(model, k + d * count, seed, example))
        for k in chosen
        for d in range(wanted)
    ]


def landmarks(model: BayesianModel) -> list[Place]:
    """The mean network, and where factors multiply shared weights, these weights themselves."""
    found = [Place("mean network", collapse(model).eval())]
    factors = [
        slot
        for _, host in hosts(model.net)
        for slot in host.slots
        if "_scale" in slot and not host.posterior(slot).by_input
    ]
    if factors:
        net = copy.deepcopy(model.net)
        revert(net, model.flags)
        found.append(Place("shared weights", net.eval()))
    return found


def _chosen(model: BayesianModel, members: Sequence[int] | None) -> Sequence[int]:
    count, name = model.method.index_members, model.method.name
    if not model.method.is_random:
        raise ConfigError(
            f"every draw of {name} is the same network: a plane needs members that differ"
        )
    if members is None:
        return range(count)
    if not count:
        raise ConfigError(f"{name} has no members under one index: write draws=8 instead")
    wrong = [k for k in members if not 0 <= k < count]
    if wrong or len(set(members)) != len(members):
        raise ConfigError(
            f"members are different numbers from 0 to {count - 1}, found {list(members)}"
        )
    return members


def _drawn(model: BayesianModel, sample: int, seed: int, example: Any) -> nn.Module:
    """The network of one sample of `lb.predict`, proved to be it on the example."""
    plan = model.method.prediction_plan([sample], KeyedNoise(seed, [sample]))
    members = model.method.index_members
    member = sample % members if members else None
    net = copy.deepcopy(model.net)
    with torch.no_grad():
        settle(net, member, lambda host, slot: _value(host, slot, plan, member))
        revert(net, model.flags)
        net.eval()
        with evaluating(model):
            wanted = tensor_of(call(model, example, plan=plan))
        _check_same(tensor_of(call(net, example)), wanted, model)
    return net


def _value(host: Host, slot: str, plan: Plan, member: int | None) -> Tensor | None:
    """What a slot is worth in this plan; None of a mask that no weight of its layer can hold."""
    posterior, ask = host.posterior(slot), Ask()
    if posterior.by_input:
        sizes = host.factor_sizes(host)
        size = sizes.get("out_scale" if slot == "out_mask" else slot)
        if size is None:
            return None
        ask = Ask(shape=(size,))
    form = posterior.form(host.base(slot), Scope(plan=plan, rows=1, member=member), ask)
    if not isinstance(form, Shared):
        raise TypeError(f"one draw cannot take the form {type(form).__name__}")
    return form.value


def _check_same(found: Tensor, wanted: Tensor, model: BayesianModel) -> None:
    scale = float(wanted.abs().max()) or 1.0
    if float((found - wanted).abs().max()) <= 1e-3 * scale:
        return
    raise ConfigError(
        f"a draw of {model.method.name} is no set of weights: it masks activations that no weight "
        "of their layer can hold (elements of feature maps or of tokens, the network's own "
        "dropout layers). Masks of whole channels can: lb.MCDropout(channelwise=True, "
        "existing=False); lb.diversity compares what any draws predict"
    )
