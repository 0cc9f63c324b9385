"""Which examples make up a batch: arithmetic alone, the same everywhere and after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from leanbayes.errors import ConfigError, DataError
from leanbayes.noise import key_seed
from leanbayes.train.fields import check_whole


@dataclass(frozen=True)
class Order:
    """The batches of every epoch as a pure function of (seed, epoch), and the part of one process.

    A global batch is `batch_size` neighbours of the epoch's order; process `rank` has the rows
    `rank * part` to `(rank + 1) * part` of it, with `part = rows // world`. Of a batch that `world`
    does not divide, `rows % world` examples rest that epoch, and so does a last batch with fewer
    than `smallest` rows a process.

    Attributes:
        examples: Number of examples.
        batch_size: Rows of a global batch, of all processes together.
        seed: Decides the orders.
        rank: This process.
        world: Number of processes.
        smallest: Fewest rows a process may get.
        shuffle: False keeps the order of the data in all epochs.
        drop_last: Leave out a batch that is not full.

    Example:
        >>> order = Order(examples=10, batch_size=4, seed=0, rank=1, world=2, shuffle=False)
        >>> [rows.tolist() for rows in order.batches(0)]
        [[2, 3], [6, 7], [9]]
    """

    examples: int
    batch_size: int
    seed: int = 0
    rank: int = 0
    world: int = 1
    smallest: int = 1
    shuffle: bool = True
    drop_last: bool = False

    def __post_init__(self) -> None:
        check_sizes(self.batch_size, self.rank, self.world, self.smallest)
        if self.examples < 1:
            raise DataError("the data are empty: expected at least one example")
        if self.batch_size // self.world < self.smallest:
            raise ConfigError(
                f"batch_size={self.batch_size} over {self.world} processes gives "
                f"{self.batch_size // self.world} rows a process; expected at least "
                f"{self.smallest}: write batch_size={self.smallest * self.world} or more"
            )
        if self.steps < 1:
            raise DataError(self._too_few())

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        full, rest = divmod(self.examples, self.batch_size)
        return full + (not self.drop_last and rest // self.world >= self.smallest)

    def of_epoch(self, epoch: int) -> Tensor:
        """All examples in the order of an epoch."""
        if not self.shuffle:
            return torch.arange(self.examples)
        generator = torch.Generator().manual_seed(key_seed(self.seed, "order", epoch))
        return torch.randperm(self.examples, generator=generator)

    def part(self, order: Tensor, step: int) -> Tensor:
        """The rows of this process in batch `step` of an order."""
        batch = order[step * self.batch_size : (step + 1) * self.batch_size]
        rows = len(batch) // self.world
        return batch[self.rank * rows : (self.rank + 1) * rows]

    def batches(self, epoch: int, start: int = 0) -> Iterator[Tensor]:
        """The rows of this process, batch by batch, from batch `start` on."""
        order = self.of_epoch(epoch)
        return (self.part(order, step) for step in range(start, self.steps))

    def _too_few(self) -> str:
        wanted = self.batch_size if self.drop_last else self.smallest * self.world
        reason = "drop_last" if self.drop_last else f"{self.smallest} rows a process"
        return (
            f"{self.examples} examples do not make one batch: {wanted} are needed ({reason}). "
            "Give more data, or write a smaller batch_size, fewer processes or drop_last=False"
        )


def check_sizes(batch_size: int, rank: int, world: int, smallest: int) -> None:
    """Raise unless all are whole numbers in range."""
    for name, value in {"batch_size": batch_size, "world": world, "smallest": smallest}.items():
        check_whole(name, value, least=1)
    check_whole("rank", rank, least=0)
    if rank >= world:
        raise ConfigError(f"rank must be 0 to {world - 1} (world={world}), found {rank!r}")
