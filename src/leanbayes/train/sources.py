"""Where batches come from: tensors, examples that are read one by one, or ready batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, IterableDataset, default_collate

from leanbayes.errors import DataError, PlanError
from leanbayes.noise import key_seed
from leanbayes.plan import as_dict, count_rows
from leanbayes.train.keyed import Keyed, Stream, Worker, guarded, kept
from leanbayes.train.order import Order

Batch = tuple[Any, Any]


class Source(Protocol):
    """Batches of an epoch, and what they amount to."""

    @property
    def num_data(self) -> int:
        """Examples."""

    @property
    def steps(self) -> int:
        """Batches of an epoch."""

    @property
    def batch_size(self) -> int:
        """Rows of a global batch."""

    def epoch(self, number: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch from `start` on."""

    def every(self) -> Iterator[Batch]:
        """All data once, uncut, in no order that matters."""

    def first(self) -> Batch:
        """A batch to look at."""


@dataclass(frozen=True)
class Ordered:
    """What sources with an order of ours have in common."""

    order: Order

    @property
    def num_data(self) -> int:
        """Examples."""
        return self.order.examples

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return self.order.steps

    @property
    def batch_size(self) -> int:
        """Rows of a global batch."""
        return self.order.batch_size


@dataclass(frozen=True)
class Tensors(Ordered):
    """Inputs (any pytree of tensors) and targets with the examples in dim 0.

    Rows are picked where the tensors are. They are copies, so that a network that writes into its
    input does not write into the data.
    """

    data: Batch

    def epoch(self, number: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch from `start` on."""
        order = self.order.of_epoch(number)
        devices = {leaf.device for leaf in pytree.tree_leaves(self.data)}
        orders = {device: sent(order, device) for device in devices}  # once an epoch
        for step in range(start, self.steps):
            rows = {device: self.order.part(orders[device], step) for device in devices}
            yield _picked(self.data, rows)

    def every(self) -> Iterator[Batch]:
        """All at once."""
        yield self.data

    def first(self) -> Batch:
        """All at once."""
        return self.data


def _picked(data: Batch, rows: dict[torch.device, Tensor]) -> Batch:
    """These rows of all tensors."""

    def pick(x: Tensor) -> Tensor:
        return x.index_select(0, rows[x.device])

    inputs, targets = data
    if isinstance(inputs, Tensor):  # nearly always: to walk through a tree costs a small step
        return pick(inputs), pick(targets)
    return pytree.tree_map(pick, inputs), pick(targets)


def sent(order: Tensor, device: torch.device) -> Tensor:
    """The order on a device; a GPU takes it when it gets there, nobody waits."""
    return order.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else order


@dataclass(frozen=True)
class Examples(Ordered):
    """A dataset that is read example by example, with randomness by key.

    Attributes:
        dataset: Anything with `__getitem__`.
        settings: Keywords of the DataLoader that reads it.
    """

    dataset: Any
    settings: dict[str, Any]

    def epoch(self, number: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch from `start` on."""
        return self._read(self.order, number, start)

    def every(self) -> Iterator[Batch]:
        """All examples, as the first epoch reads them."""
        alone = replace(self.order, rank=0, world=1, smallest=1)
        return self._read(replace(alone, shuffle=False, drop_last=False), 0, 0)

    def first(self) -> Batch:
        """The first examples, read in this process."""
        rows = range(min(self.batch_size, self.num_data))
        examples = Keyed(self.dataset, self.order.seed, 0)
        with kept():
            return pair(self.collate([examples[row] for row in rows]))

    @property
    def collate(self) -> Callable[[list[Any]], Any]:
        """How examples become a batch."""
        collate: Callable[[list[Any]], Any] = self.settings.get("collate_fn", default_collate)
        return collate

    def _read(self, order: Order, number: int, start: int) -> Iterator[Batch]:
        loader: DataLoader[Any] = DataLoader(
            Keyed(self.dataset, order.seed, number),
            batch_sampler=_Rows(order, number, start),
            generator=torch.Generator().manual_seed(key_seed(order.seed, "loader", number)),
            **self.settings,
        )
        # Workers draw from generators of their own.
        return map(pair, loader if loader.num_workers else guarded(loader, kept))


@dataclass(frozen=True)
class _Rows:
    """The order as a batch sampler."""

    order: Order
    number: int
    start: int

    def __iter__(self) -> Iterator[list[int]]:
        return (rows.tolist() for rows in self.order.batches(self.number, self.start))

    def __len__(self) -> int:
        return self.order.steps - self.start


def loader_settings(loader: DataLoader[Any]) -> dict[str, Any]:
    """The keywords of a DataLoader but for its order, its batch size and persistent workers."""
    settings: dict[str, Any] = {
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "num_workers": loader.num_workers,
    }
    if loader.num_workers:
        settings |= {
            "timeout": loader.timeout,
            "prefetch_factor": loader.prefetch_factor,
            "multiprocessing_context": loader.multiprocessing_context,
            "worker_init_fn": Worker(loader.worker_init_fn),
        }
    return settings


def dataset_settings(workers: int) -> dict[str, Any]:
    """The keywords of the DataLoader of a bare dataset."""
    settings: dict[str, Any] = {"num_workers": workers, "pin_memory": torch.cuda.is_available()}
    return settings | ({"worker_init_fn": Worker()} if workers else {})


@dataclass(frozen=True)
class Ready:
    """Batches that are used as they are; to start later is to skip.

    What an epoch draws from the global generators, or from those of a loader and its samplers,
    depends on (seed, epoch); `set_epoch` is called wherever there is one. Batches with fewer than
    `smallest` rows are left out.
    """

    batches: Iterable[Any]
    seed: int
    smallest: int
    num_data: int
    steps: int
    batch_size: int

    def epoch(self, number: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch from `start` on."""
        given = 0
        large = (b for b in self._iterate(number) if rows_of(b) >= self.smallest)
        for given, batch in enumerate(islice(large, self.steps), 1):
            if given > start:
                yield batch
        if given < self.steps:
            raise DataError(
                f"epoch {number} of the training batches ended after {given} of {self.steps}: "
                "every epoch must be as long as its length says. Correct its __len__, or give a "
                "Dataset with __getitem__ and __len__"
            )

    def every(self) -> Iterator[Batch]:
        """The first epoch."""
        return self._iterate(0)

    def first(self) -> Batch:
        """The first batch."""
        return next(self.every())

    def _iterate(self, number: int) -> Iterator[Batch]:
        return map(pair, epoch_of(self.batches, self.seed, number))


def is_own_part(reader: Source) -> bool:
    """True where a reader knows the batches of its process alone, and no dataset behind them."""
    if not isinstance(reader, Ready):
        return False
    loader = reader.batches
    return not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset)


def epoch_of(batches: Iterable[Any], seed: int, number: int) -> Iterator[Any]:
    """One pass over ready batches, told of the epoch and seeded for it."""
    if isinstance(batches, (list, tuple)):
        return iter(batches)
    key = key_seed(seed, "loader", number)
    for part in _parts(batches):
        if callable(getattr(part, "set_epoch", None)):
            part.set_epoch(number)
        own = getattr(part, "generator", None)
        if isinstance(own, torch.Generator) and own is not torch.default_generator:
            own.manual_seed(key)
    return guarded(batches, Stream(key).active)


def _parts(batches: Any) -> list[Any]:
    """A loader and what in it may keep an order."""
    sampler = getattr(batches, "batch_sampler", None)
    names = ("dataset", "sampler", "batch_sampler")
    inner = [getattr(batches, name, None) for name in names]
    found = [batches, *inner, getattr(sampler, "sampler", None)]
    return list({id(part): part for part in found if part is not None}.values())


def pair(batch: Any) -> Batch:
    """A batch as (inputs, targets)."""
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return as_dict(batch[0]), batch[1]
    size = f" of {len(batch)}" if isinstance(batch, (tuple, list, dict)) else ""
    raise DataError(
        f"a batch is a {type(batch).__name__}{size}; expected a pair (inputs, targets). Several "
        "inputs go into one tuple or dict, ((a, b), targets): write a collate_fn, or a Dataset "
        "whose examples are such pairs"
    )


def rows_of(batch: Batch) -> int:
    """Rows of a batch, the same in inputs and targets."""
    inputs, targets = batch
    try:
        rows = count_rows((inputs,), {})
    except PlanError as error:
        raise DataError(f"a batch without rows: {error}") from error
    if isinstance(targets, Tensor) and (targets.dim() == 0 or len(targets) != rows):
        raise DataError(
            f"a batch has inputs of {rows} rows and targets of shape {tuple(targets.shape)}; "
            "expected as many targets as rows. (A list holds ready batches; single examples go "
            "into a Dataset)"
        )
    return rows
