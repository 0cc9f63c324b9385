"""Tensors that FSDP2 has cut into shards: the part at hand, the whole, and back again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

PLAIN = frozenset({Tensor, nn.Parameter})


def is_shard(tensor: Tensor) -> bool:
    """True for a distributed tensor."""
    # A look-up that fails costs a microsecond, so the common types go first.
    return type(tensor) not in PLAIN and hasattr(tensor, "full_tensor")


def local_part(tensor: Tensor) -> Tensor:
    """The shard of this process where the tensor is distributed, else the tensor itself."""
    if not is_shard(tensor):
        return tensor
    distributed: Any = tensor
    part: Tensor = distributed.to_local()
    return part


def local_parts(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Those of many tensors."""
    return [t if type(t) in PLAIN else local_part(t) for t in tensors]


def whole(tensor: Tensor) -> Tensor:
    """The gathered tensor, with a gradient; for laws whose terms mix entries of all shards."""
    if not is_shard(tensor):
        return tensor
    distributed: Any = tensor
    full: Tensor = distributed.full_tensor()
    return full


def shard_like(full: Tensor, target: Tensor) -> Tensor:
    """A tensor that every process holds whole, cut as `target` is; nothing is sent."""
    if not is_shard(target):
        return full
    from torch.distributed.tensor import DTensor, Replicate

    distributed: Any = target
    mesh = distributed.device_mesh
    copies = DTensor.from_local(full, mesh, [Replicate()] * mesh.ndim)
    return copies.redistribute(mesh, distributed.placements)
