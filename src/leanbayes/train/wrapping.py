"""What a model wears while it trains: checkpointed blocks, synchronised norms, DDP or FSDP2.

Everything is put on in place and can be taken off again, so that after a run the user's network has
the classes, hooks and Parameter objects that it had before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from leanbayes.layers import Host
from leanbayes.layers.base import original_class
from leanbayes.layers.norm import BayesianSyncBatchNorm
from leanbayes.methods.base import Method
from leanbayes.model import BayesianModel, reshard
from leanbayes.posteriors.members import Members
from leanbayes.posteriors.shards import whole

Undo = Callable[[], None]
STOCK_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
LISTS = (nn.ModuleList, nn.ModuleDict)


def blocks(net: nn.Module) -> list[nn.Module]:
    """The direct children that hold hosts; lists, which are never called, count by element."""
    if isinstance(net, Host) and not isinstance(net, LISTS):  # its children are its own affair
        return []
    found: dict[int, nn.Module] = {}
    for child in net.children():
        inner = blocks(child) if isinstance(child, LISTS) else [child]
        found.update({id(m): m for m in inner})
    return [m for m in found.values() if any(isinstance(part, Host) for part in m.modules())]


def checkpoint_blocks(net: nn.Module) -> Undo:
    """Keep only the inputs of every block; its pass is repeated, noise and all, in backward."""
    chosen = [m for m in blocks(net) or [net] if "forward" not in m.__dict__]
    for block in chosen:
        contexts = partial(_contexts, block)
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)

    def undo() -> None:
        for block in chosen:
            del block.forward

    return undo


def _contexts(block: nn.Module) -> tuple[Any, Any]:
    return nullcontext(), _resting_statistics(block)


@contextmanager
def _resting_statistics(block: nn.Module) -> Iterator[None]:
    """A pass that is repeated must not move BatchNorm's running statistics a second time."""
    norms = [m for m in block.modules() if isinstance(m, _BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    counts = [b for name, b in block.named_buffers() if name.endswith("num_batches_tracked")]
    before = [count.clone() for count in counts]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for count, value in zip(counts, before, strict=True):
            count.copy_(value)


def synchronise_norms(net: nn.Module) -> Undo:
    """BatchNorm with statistics over all processes, by a change of class in place.

    Members of an ensemble that have statistics of their own keep them a process.
    """
    changed = [(m, type(m)) for m in net.modules() if _can_synchronise(m)]
    for layer, cls in changed:
        layer.__dict__["process_group"] = None
        layer.__class__ = BayesianSyncBatchNorm if issubclass(cls, Host) else nn.SyncBatchNorm

    def undo() -> None:
        for layer, cls in changed:
            layer.__class__ = cls
            del layer.__dict__["process_group"]

    return undo


def _can_synchronise(module: nn.Module) -> bool:
    if not isinstance(module, Host):
        return type(module) in STOCK_NORMS
    return original_class(module) in STOCK_NORMS and not getattr(module, "has_members", False)


def distributed(model: nn.Module, inner: BayesianModel, device: torch.device) -> nn.Module:
    """The model in DDP; `model` may be compiled, `inner` is the model inside."""
    ids = [device] if device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=ids, find_unused_parameters=leaves_out(inner))


def leaves_out(model: BayesianModel) -> bool:
    """True where a pass may use some members of an ensemble only: DDP then has to look for them.

    Members that have rows of every batch are always used, and looking costs a walk over the graph.
    """
    if not any(isinstance(q, Members) and q.members > 1 for _, _, q, _ in model.posteriors()):
        return False
    rules = {getattr(part, "assign", None) for part in _parts(model.method)}
    return model.sequence_first or bool(rules & {"turns", "random"})


def _parts(method: Method) -> Iterator[Method]:
    yield method
    for _, part in getattr(method, "parts", ()):
        yield from _parts(part)


def hollow(module: nn.Module) -> None:
    """Take the process group out of a DDP wrapper, whoever still holds it.

    A reducer that lives until the interpreter ends may abort the process.
    """
    if isinstance(module, DistributedDataParallel):
        for name in ("reducer", "logger", "process_group"):
            module.__dict__.pop(name, None)


def compile_blocks(net: nn.Module, backend: str) -> Undo:
    """Compile block by block and in place: FSDP2 gathers parameters between the blocks."""
    chosen = blocks(net) or [net]
    for block in chosen:
        block.compile(backend=backend)

    def undo() -> None:
        for block in chosen:
            block.__dict__.pop("_compiled_call_impl", None)

    return undo


class Shards:
    """A model cut by FSDP2: every block, then the rest; `undo` makes it whole again.

    FSDP2 has no way back of its own. It changes classes, adds hooks and exchanges Parameters, so
    these are noted before; the Parameter objects stay, empty, to be filled at the end.
    """

    def __init__(self, model: BayesianModel, device: torch.device) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self._model = model
        self._before = [(module, _Noted(module)) for module in model.modules()]
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for parameter in model.parameters():  # FSDP2 cuts rows, and wants them one after another
            parameter.data = parameter.data.contiguous()
        for block in _own_blocks(model.net):
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        for _, noted in self._before:
            noted.empty()

    def undo(self) -> None:
        """Whole parameters in the objects that they had; all processes must call."""
        reshard(self._model)
        full: dict[int, torch.Tensor] = {}
        with torch.no_grad():
            for module, noted in self._before:
                for name, parameter in noted.parameters.items():
                    if id(parameter) not in full:
                        full[id(parameter)] = whole(module._parameters[name].detach()).clone()  # type: ignore[union-attr]
        for module, noted in self._before:
            noted.restore(module, full)


def _own_blocks(net: nn.Module) -> list[nn.Module]:
    """Blocks that share no parameter with the rest: a shared one belongs to the root."""
    holders: dict[int, set[int]] = defaultdict(set)
    for module in net.modules():
        for parameter in module.parameters(recurse=False):
            holders[id(parameter)].add(id(module))
    found = [m for m in blocks(net) if any(True for _ in m.parameters())]
    inside = [{id(part) for part in m.modules()} for m in found]
    return [
        m
        for m, own in zip(found, inside, strict=True)
        if all(holders[id(p)] <= own for p in m.parameters())
    ]


class _Noted:
    """Class, attributes, hooks and parameters of a module."""

    def __init__(self, module: nn.Module) -> None:
        self.cls = type(module)
        self.attributes = set(module.__dict__)
        self.hooks = {
            name: value.copy() for name, value in module.__dict__.items() if _is_hooks(name, value)
        }
        self.parameters = {n: p for n, p in module._parameters.items() if p is not None}

    def empty(self) -> None:
        """Free the memory of the parameters; the shards hold the values."""
        for parameter in self.parameters.values():
            parameter.data = parameter.data.new_empty(0)

    def restore(self, module: nn.Module, full: dict[int, torch.Tensor]) -> None:
        """Put everything back."""
        object.__setattr__(module, "__class__", self.cls)
        for name in set(module.__dict__) - self.attributes:
            del module.__dict__[name]
        for name, hooks in self.hooks.items():
            module.__dict__[name].clear()
            module.__dict__[name].update(hooks)
        for name, parameter in self.parameters.items():
            parameter.data = full[id(parameter)]
            module._parameters[name] = parameter


def _is_hooks(name: str, value: Any) -> bool:
    return isinstance(value, dict) and ("_hooks" in name)
