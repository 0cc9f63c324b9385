"""The processes of a run: how they find each other, and the few things they do together."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from leanbayes.errors import ConfigError

c10d: Any = dist  # stores and rendezvous are there, but not in its list of exports
_met: list[Any] = []
_openings = count()


@dataclass(frozen=True)
class Processes:
    """Who this process is among those of the run.

    Attributes:
        rank: Number of this process, from 0.
        world: Number of processes.
        local_rank: Number of this process on its machine, which chooses its GPU.
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0

    @staticmethod
    def found() -> Processes:
        """From the process group where there is one, else from torchrun's environment."""
        local = _number("LOCAL_RANK", 0)
        if is_open():
            return Processes(dist.get_rank(), dist.get_world_size(), local)
        rank, world = _number("RANK", 0), _number("WORLD_SIZE", 1)
        if not 0 <= rank < world:
            raise ConfigError(f"RANK must be below WORLD_SIZE; found {rank} and {world}")
        return Processes(rank, world, local)

    def any(self, flags: Tensor | float) -> Tensor:
        """The largest value over all processes, of every element, in float32 on the CPU."""
        values = torch.as_tensor(flags).detach().to("cpu", torch.float32, copy=True)
        if self.world > 1:
            dist.all_reduce(values, dist.ReduceOp.MAX)
        return values

    def mean(self, values: Tensor | float) -> Tensor:
        """The mean over all processes, of every element."""
        values = torch.as_tensor(values).detach().clone()
        if self.world > 1:
            dist.all_reduce(values)
            values /= self.world
        return values

    def gather(self, thing: Any) -> list[Any]:
        """What every process holds, by rank, in all of them."""
        found: list[Any] = [thing] * self.world
        if self.world > 1:
            dist.all_gather_object(found, thing)
        return found

    def broadcast(self, thing: Any) -> Any:
        """What the first process holds, in all of them."""
        held = [thing]
        if self.world > 1:
            dist.broadcast_object_list(held)
        return held[0]

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            dist.barrier()

    def copy_first(self, tensors: Iterable[Tensor]) -> None:
        """Give every process the values of the first."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Mean gradients of parameters that no wrapper takes care of."""
        for parameter in parameters:
            if self.world > 1 and parameter.requires_grad:
                if parameter.grad is None:  # a process without a loss still takes part
                    parameter.grad = torch.zeros_like(parameter)
                parameter.grad.copy_(self.mean(parameter.grad))


def is_open() -> bool:
    """True where a process group is there."""
    return dist.is_available() and dist.is_initialized()


def open_group(found: Processes, device: torch.device, timeout: float) -> None:
    """Start the process group.

    The store is scoped by torchrun's attempt: its agent keeps one store for all restarts, in which
    the addresses of dead processes would still be found.
    """
    patience = timedelta(seconds=timeout)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        store=_store(found, patience),
        rank=found.rank,
        world_size=found.world,
        timeout=patience,
        device_id=device if device.type == "cuda" else None,
    )


def _store(found: Processes, patience: timedelta) -> Any:
    """A place to meet that no earlier attempt, and no earlier group of this process, has used."""
    if found.world == 1:  # nobody to meet
        return c10d.HashStore()
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return c10d.PrefixStore(f"leanbayes/{attempt}/{next(_openings)}", _meeting(found, patience))


def _meeting(found: Processes, patience: timedelta) -> Any:
    """The store of torchrun, for all groups: a second one on its port would race with it."""
    if _met:
        return _met[0]
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise ConfigError(
            f"WORLD_SIZE is {found.world}, but {' and '.join(missing)} lack: processes find each "
            "other by them. Start with torchrun or `leanbayes launch`"
        )
    store, _, _ = next(c10d.rendezvous("env://", found.rank, found.world, timeout=patience))
    _met.append(store)
    return _met[0]


def close_group(wait: bool) -> None:
    """End the process group.

    Whatever holds it must be gone before: a DDP wrapper that is alive when the interpreter ends
    may abort the process after a run that went well.

    Args:
        wait: Leave together; not after an error, since the others may never come.
    """
    gc.collect()
    if wait:
        dist.barrier()
    dist.destroy_process_group()


def device_of(name: str, found: Processes) -> torch.device:
    """The device of this process: `auto` is its GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device is 'auto', 'cpu', 'cuda' or 'cuda:0'; found {name!r}") from error
    if device.type != "cuda":
        return device
    index = found.local_rank if found.world > 1 or device.index is None else device.index
    if index >= torch.cuda.device_count():
        raise ConfigError(
            f"process {found.rank} needs GPU {index}, and {torch.cuda.device_count()} are here: "
            "start fewer processes on this machine, or write device='cpu'"
        )
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def _number(name: str, default: int) -> int:
    value = os.environ.get(name) or str(default)
    if not value.isdecimal():
        raise ConfigError(f"{name} in the environment must be a whole number, found {value!r}")
    return int(value)
