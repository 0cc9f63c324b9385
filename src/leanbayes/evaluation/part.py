"""Rows of a part of data in batches on one grid, whoever of the processes runs which batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, Subset

from leanbayes.errors import ConfigError, DataError
from leanbayes.plan import as_dict

LOOKED_AT = 16  # rows that stand for a part in its digest


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows from `first` on: inputs, and targets where there are any."""

    first: int
    x: Any
    y: Tensor | None


def check_part(part: Any, name: str) -> None:
    """Refuse what is neither inputs with targets nor a Dataset."""
    fits = isinstance(part, (Dataset, Tensor)) or (
        isinstance(part, (tuple, list)) and len(part) == 2 and isinstance(part[1], Tensor)
    )
    if not fits or isinstance(part, DataLoader):
        raise ConfigError(
            f"split {name!r}: expected (inputs, targets), a Dataset of such, or the inputs of "
            f"foreign data; found {type(part).__name__}. Of a loader give loader.dataset"
        )
    if size_of(part) == 0:
        raise DataError(f"split {name!r}: the data hold no examples")
    if isinstance(part, (tuple, list)):
        rows = {len(leaf) for leaf in pytree.tree_leaves(as_dict(part[0])) if _has_rows(leaf)}
        if rows - {len(part[1])}:
            raise DataError(
                f"split {name!r}: {', '.join(map(str, sorted(rows)))} rows of inputs and "
                f"{len(part[1])} targets; expected as many"
            )


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dim() > 0


def size_of(part: Any) -> int:
    """Rows of a part."""
    if isinstance(part, (tuple, list)):
        return len(part[1])
    return len(part)


def rows_at(part: Any, rows: list[int]) -> tuple[Any, Tensor | None]:
    """Inputs and targets of some rows."""
    if isinstance(part, Dataset):
        return _pair(next(iter(DataLoader(Subset(part, rows), len(rows)))))
    x, y = _pair(part)
    return _picked(x, rows), None if y is None else y[rows]


def share_of(count: int, size: int, rank: int, world: int) -> range:
    """The rows of a process: whole batches of the grid, one after another.

    Joined by rank the rows of all processes are in order, so that what depends on the order of
    rows, as the last bit of a mean, does not depend on the number of processes.

    Example:
        >>> [share_of(70, 16, rank, 2) for rank in range(2)]
        [range(0, 32), range(32, 70)]
    """
    batches = -(-count // size)
    start, stop = (batches * r // world * size for r in (rank, rank + 1))
    return range(min(start, count), min(stop, count))


def batches_of(part: Any, rows: range, size: int) -> Iterator[Batch]:
    """Consecutive rows of a part."""
    if isinstance(part, Dataset):
        loader: DataLoader[Any] = DataLoader(Subset(part, rows), size)
        for number, item in enumerate(loader if len(rows) else ()):
            yield Batch(rows.start + number * size, *_pair(item))
        return
    x, y = _pair(part)
    for first in range(rows.start, rows.stop, size):
        at = slice(first, min(first + size, rows.stop))
        yield Batch(first, _picked(x, at), None if y is None else y[at])


def digest(part: Any) -> str:
    """Of the data: all tensors; of a Dataset some rows, evenly over it, and their number.

    A Dataset may decode files, so that a look at all of its rows would cost as much as a pass.
    """
    count = size_of(part)
    found = sha256(str(count).encode())
    rows = sorted({at * (count - 1) // max(LOOKED_AT - 1, 1) for at in range(LOOKED_AT)})
    looked_at = rows_at(part, rows) if isinstance(part, Dataset) else part
    for leaf in pytree.tree_leaves(looked_at):
        found.update(_bytes(leaf) if isinstance(leaf, Tensor) else repr(leaf).encode())
    return found.hexdigest()[:16]


def _bytes(tensor: Tensor) -> memoryview | bytes:
    whole = tensor.detach().cpu().contiguous().reshape(-1)
    return whole.view(torch.uint8).numpy().data if whole.numel() else b""


def _pair(item: Any) -> tuple[Any, Tensor | None]:
    x, y = (item[0], item[1]) if isinstance(item, (tuple, list)) else (item, None)
    return as_dict(x), y


def _picked(x: Any, at: slice | list[int]) -> Any:
    return pytree.tree_map_only(Tensor, lambda leaf: leaf[at], x)
