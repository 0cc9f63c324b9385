"""Which member a row of the batch trains: any batch size, any number of members."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from leanbayes.errors import ConfigError, PlanError

Assign = Literal["split", "interleave", "random", "tile"]


def assigned(assign: Assign, rows: int, members: int, step: int | None = None) -> Tensor:
    """The member of every row, [rows].

    `interleave` gives row b the member (b + step) mod K; `split` contiguous blocks whose sizes
    differ by at most one, rotated by step; `random` an independent uniform member; `tile` whole
    copies of the batch, one a member (rows are the copies). Without a step the rotation is random.

    Example:
        >>> assigned("interleave", 5, 3, step=1).tolist()
        [1, 2, 0, 1, 2]
        >>> assigned("split", 5, 2, step=0).tolist()
        [0, 0, 0, 1, 1]
    """
    if assign == "random":
        return torch.randint(members, (rows,))
    if rows < members:
        raise PlanError(
            f"{rows} rows cannot train {members} members: every member needs a row. Use a batch "
            f"of at least {members}, or assign='random'"
        )
    row = torch.arange(rows)
    if assign == "tile":
        return row // (rows // members)
    rotation = torch.randint(members, ()) if step is None else step
    block = row if assign == "interleave" else (row * members) // rows
    return (block + rotation) % members


def check_members(members: int) -> None:
    """Raise unless there is at least one member."""
    if isinstance(members, bool) or members != int(members) or members < 1:
        raise ConfigError(f"members must be a whole number of at least 1, found {members!r}")
