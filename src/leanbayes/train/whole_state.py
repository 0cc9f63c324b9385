"""State of a model and its optimiser by name, whole: the same for one process, DDP and FSDP2.

Tensors that FSDP2 has cut are gathered, and cut again for whatever number of processes loads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from leanbayes.errors import CheckpointError
from leanbayes.model import BayesianModel, reshard
from leanbayes.posteriors.shards import is_shard, local_part, shard_like, whole

Tensors = dict[str, Tensor]
LIKELIHOOD = "likelihood."


def living_tensors(model: BayesianModel) -> Tensors:
    """Every parameter and saved buffer once, by its first name.

    A likelihood in `model.likelihood` is left out: which one a run trains is the run's affair.
    """
    reshard(model)
    first: dict[int, str] = {}
    named = model.state_dict(keep_vars=True)
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise CheckpointError(f"{name} is no tensor ({type(value).__name__}): cannot be saved")
        first.setdefault(id(value), name)
    names = [name for name in first.values() if not name.startswith(LIKELIHOOD)]
    return {name: named[name] for name in names}


def trained_tensors(model: BayesianModel, likelihood: nn.Module | None) -> Tensors:
    """Everything an optimiser may hold, by name: the model's tensors and the likelihood's."""
    own = {} if likelihood is None else dict(likelihood.named_parameters())
    return living_tensors(model) | {LIKELIHOOD + name: p for name, p in own.items()}


def copies(tensors: Tensors) -> Tensors:
    """Whole copies on the CPU; all processes must call."""
    return {name: _copied(tensor) for name, tensor in tensors.items()}


def load_tensors(living: Tensors, saved: Mapping[str, Tensor]) -> None:
    """Write saved values into the living tensors; nothing is written if one does not fit."""
    _check_names("tensors", set(living), set(saved))
    for name, tensor in living.items():
        if (saved[name].shape, saved[name].dtype) != (tensor.shape, tensor.dtype):
            raise CheckpointError(
                f"'{name}' was saved as {saved[name].dtype} {tuple(saved[name].shape)}; the model "
                f"has {tensor.dtype} {tuple(tensor.shape)}"
            )
    with torch.no_grad():
        for name, tensor in living.items():
            local_part(tensor).copy_(local_part(_as_in(saved[name], tensor)))


def optimizer_state(optimizer: torch.optim.Optimizer, living: Tensors) -> dict[str, Any]:
    """`{"state": {parameter: values}, "groups": [settings and names]}`; all processes must call."""
    names = {id(tensor): name for name, tensor in living.items()}
    state: dict[str, Any] = {}
    groups = []
    for group in optimizer.param_groups:
        settings = {key: _plain(value) for key, value in group.items() if key != "params"}
        groups.append({**settings, "params": [_name_of(p, names) for p in group["params"]]})
        for parameter in group["params"]:
            if parameter in optimizer.state:
                values = optimizer.state[parameter]
                state[names[id(parameter)]] = {key: _plain(v) for key, v in values.items()}
    return {"state": state, "groups": groups}


def load_optimizer(
    optimizer: torch.optim.Optimizer, living: Tensors, saved: Mapping[str, Any]
) -> None:
    """Give every parameter the saved state of its name, and its group the saved settings."""
    names = {id(tensor): name for name, tensor in living.items()}
    own = [[_name_of(p, names) for p in group["params"]] for group in optimizer.param_groups]
    group_of = {name: group for group in saved["groups"] for name in group["params"]}
    order = [name for group in own for name in group]
    _check_names("parameters of the optimiser", set(order), set(group_of))
    index = {name: number for number, name in enumerate(order)}
    state = {
        index[name]: {key: _placed(value, living[name]) for key, value in values.items()}
        for name, values in saved["state"].items()
    }
    settings = [group_of[g[0]] if g else {} for g in own]
    groups = [
        {**now, **before, "params": [index[name] for name in names]}
        for now, before, names in zip(optimizer.param_groups, settings, own, strict=True)
    ]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _name_of(parameter: Tensor, names: Mapping[int, str]) -> str:
    if id(parameter) not in names:
        raise CheckpointError(
            f"the optimiser holds a parameter of shape {tuple(parameter.shape)} that is neither in "
            "the model nor in the likelihood: its state has no name to be saved by"
        )
    return names[id(parameter)]


def _check_names(what: str, expected: set[str], found: set[str]) -> None:
    if expected != found:
        lacking, extra = sorted(expected - found), sorted(found - expected)
        raise CheckpointError(
            f"the saved {what} are those of another run: {len(lacking)} lack {lacking[:3]}, "
            f"{len(extra)} are unknown {extra[:3]}"
        )


def _copied(tensor: Tensor) -> Tensor:
    full = whole(tensor.detach())
    return full.to("cpu", copy=True, memory_format=torch.contiguous_format)


def _plain(value: Any) -> Any:
    """A copy in which no tensor is shared with the optimiser."""
    return pytree.tree_map_only(Tensor, _copied, value)


def _placed(value: Any, parameter: Tensor) -> Any:
    """State in the shape of a parameter is cut as the parameter is; counters stay as they are."""
    if not isinstance(value, Tensor):
        return value
    same = is_shard(parameter) and value.shape == parameter.shape
    return _as_in(value, parameter) if same else value.clone()


def _as_in(value: Tensor, target: Tensor) -> Tensor:
    return shard_like(value.detach().to(target.device), target)
