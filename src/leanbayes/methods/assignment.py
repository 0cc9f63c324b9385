"""Which member a row of the batch trains, and a sample of a prediction uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from leanbayes.counts import checked_count
from leanbayes.errors import PlanError
from leanbayes.noise import NoiseSource
from leanbayes.plan import Plan

Assign = Literal["split", "interleave", "random", "tile"]


def assigned(
    assign: Assign, rows: int, members: int, *, samples: int = 1, step: int | None = None
) -> Tensor:
    """The member of every row, [rows]; rows are `samples` copies of a batch, draw-major.

    `split`: contiguous blocks of the batch whose sizes differ by at most one, rotated by step; all
    copies of an example train one member (the text of iBNN). `interleave`: row b trains member
    (b + step) mod K, and copy t of it the t-th member after (the code of iBNN: b * samples + t).
    `random`: an independent uniform member a row. `tile`: one member a copy of the batch, where
    there are as many copies (`lb.objective` makes them); else as `split`. Without a step the
    rotation is random.

    Example:
        >>> assigned("interleave", 5, 3, step=1).tolist()
        [1, 2, 0, 1, 2]
        >>> assigned("split", 5, 2, step=0).tolist()
        [0, 0, 0, 1, 1]
        >>> assigned("tile", 6, 2, samples=2).tolist()
        [0, 0, 0, 1, 1, 1]
    """
    if assign == "random":
        return torch.randint(members, (rows,))
    copy, example = _rows(rows, samples)
    if assign == "tile" and samples % members == 0:
        return copy // (samples // members)
    batch = rows // samples
    check_rows(rows if assign == "interleave" else batch, members)
    place = example * samples + copy if assign == "interleave" else (example * members) // batch
    return (place + _rotation(members, step)) % members


def blocks(members: int, samples: int, step: int | None = None) -> Tensor:
    """The member of every block where a batch splits evenly, [samples * K]."""
    return ((torch.arange(members) + _rotation(members, step)) % members).repeat(samples)


def even_blocks(most: int, batch: int) -> int:
    """The largest number of equal blocks of a batch, at most so many.

    Example:
        >>> even_blocks(8, 80), even_blocks(8, 30)
        (8, 6)
    """
    return next(count for count in range(min(most, batch), 0, -1) if batch % count == 0)


def in_turn(members: int, blocks: int) -> Tensor:
    """A uniform member a block, [blocks]; none again before all had one."""
    return torch.randperm(members)[torch.arange(blocks) % members]


def prediction_by_member(members: int, samples: Sequence[int], noise: NoiseSource) -> Plan:
    """The plan of a prediction in which sample t uses member t mod K."""
    component = torch.tensor([t % members for t in samples])
    return Plan(groups=len(samples), component=component, noise=noise)


def check_rows(rows: int, members: int) -> None:
    """Raise unless every member can have a row."""
    if rows < members:
        raise PlanError(
            f"{rows} rows cannot train {members} members: every member needs a row. Use batches "
            f"of at least {members} (DataLoader(drop_last=True) where the last one is too short), "
            "or assign='random'"
        )


def settle_members(method: Any) -> None:
    """Make the members of a frozen method an int; raise unless there is at least one."""
    object.__setattr__(method, "members", checked_count("members", method.members))


def _rows(rows: int, samples: int) -> tuple[Tensor, Tensor]:
    """Which copy of the batch, and which example of it, every row is."""
    row, batch = torch.arange(rows), rows // samples
    return row // batch, row % batch


def _rotation(members: int, step: int | None) -> Tensor | int:
    return torch.randint(members, ()) if step is None else step
