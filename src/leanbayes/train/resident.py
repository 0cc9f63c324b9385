"""Training data that lie on the device: moved once, images of few values as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from leanbayes.train.order import Order
from leanbayes.train.sources import Batch, Ordered, sent

VALUES = 256
LOOKED_AT = 64  # images that tell most others without a sort of all


@dataclass(frozen=True, eq=False)
class Bytes:
    """Images as a byte a pixel, and the value of every byte by channel: the very same numbers.

    Pixels that were bytes have at most 256 values a channel, however they have been normalised
    since; so they take a quarter of the memory of float32, exactly.

    Attributes:
        codes: uint8 [N, C, ...].
        table: Values [C * 256], a channel after the other.
    """

    codes: Tensor
    table: Tensor

    @staticmethod
    def of(x: Tensor, device: torch.device) -> Bytes | None:
        """Images [N, C, H, W] on a device; None where a channel has more values, or is no number.

        Cost: a sort of every channel there.
        """
        if x.dim() != 4 or not x.is_floating_point() or not len(x):
            return None
        if len(torch.unique(x[:LOOKED_AT, 0])) > VALUES:
            return None
        codes = torch.empty(x.shape, dtype=torch.uint8, device=device)
        table = torch.zeros(x.shape[1], VALUES, dtype=x.dtype, device=device)
        for channel, pixels in enumerate(x.unbind(1)):
            values, places = torch.unique(pixels.to(device), return_inverse=True)
            if len(values) > VALUES:
                return None
            codes[:, channel] = places.to(torch.uint8)
            table[channel, : len(values)] = values
        return Bytes(codes, table.flatten())

    def __len__(self) -> int:
        return len(self.codes)

    def rows(self, index: Tensor) -> Tensor:
        """The images of these rows as they were."""
        codes = self.codes.index_select(0, index).long()
        first = torch.arange(0, len(self.table), VALUES, device=codes.device)
        return self.table[codes + first.view(-1, *(1,) * (codes.dim() - 2))]


def resident(data: Any, device: torch.device) -> Any:
    """Pairs (inputs, targets) of tensors on the device, images as `Bytes`; others as they are."""
    if not isinstance(data, tuple) or len(data) != 2 or not isinstance(data[1], Tensor):
        return data
    inputs, targets = data
    there = isinstance(inputs, Tensor) and inputs.device == device and device.type != "cpu"
    if isinstance(inputs, Bytes) or there:
        return data
    found = Bytes.of(inputs, device) if isinstance(inputs, Tensor) else None
    moved = pytree.tree_map_only(Tensor, lambda x: x.to(device), inputs) if found is None else found
    return moved, targets.to(device)


@dataclass(frozen=True)
class Residents(Ordered):
    """Images as bytes and their targets, on one device; rows are picked there."""

    inputs: Bytes
    targets: Tensor

    @staticmethod
    def of(data: tuple[Bytes, Tensor], order: Order) -> Residents:
        """The batches of a pair in this order."""
        return Residents(order, *data)

    def epoch(self, number: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch from `start` on."""
        order = sent(self.order.of_epoch(number), self.targets.device)
        for step in range(start, self.steps):
            yield self._picked(self.order.part(order, step))

    def every(self) -> Iterator[Batch]:
        """All data, in batches."""
        rows = torch.arange(self.num_data, device=self.targets.device)
        yield from map(self._picked, torch.split(rows, self.batch_size))

    def first(self) -> Batch:
        """The first rows."""
        return next(iter(self.every()))

    def _picked(self, rows: Tensor) -> Batch:
        return self.inputs.rows(rows), self.targets.index_select(0, rows)
