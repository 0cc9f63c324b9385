"""The batches of a run: any kind of training data, in an order that survives restarts."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from leanbayes.errors import ConfigError, DataError
from leanbayes.likelihood import Categorical, Likelihood, RealTargets
from leanbayes.train.fields import check_whole
from leanbayes.train.order import Order, check_sizes
from leanbayes.train.resident import Bytes, Residents
from leanbayes.train.sizes import common_length, counted_sizes, known_sizes, length
from leanbayes.train.sources import (
    Batch,
    Examples,
    Ready,
    Source,
    Tensors,
    dataset_settings,
    loader_settings,
    pair,
    rows_of,
)

KINDS = (
    "a pair (inputs, targets) of tensors, a Dataset with __getitem__ and __len__, a DataLoader, or "
    "a list of batches (inputs, targets)"
)


class Batches:
    """The global batches of a run, cut for this process.

    The order is a function of (seed, epoch) alone, and random augmentation in `__getitem__` is
    keyed by (seed, epoch, index): neither the number of workers nor a restart in the middle of an
    epoch changes a bit of a batch, and the generators of the process stay as they are.

    A DataLoader without a sampler of its own lends its dataset, batch size (of all processes
    together), collate_fn, workers, pin_memory and drop_last; the order is ours where it shuffles.
    One with its own sampler or batch_sampler, with an IterableDataset, or of another class is used
    as it is, as are lists and other iterables of batches: each process reads its own, and to start
    in the middle of an epoch is to skip.

    Args:
        train: A pair (inputs, targets) of tensors (inputs any pytree of them), a Dataset, a
            DataLoader, or batches that can be read again and again.
        batch_size: Rows of a global batch; a DataLoader has its own.
        seed: Decides order and augmentation.
        rank: This process.
        world: Number of processes.
        workers: Worker processes that read a Dataset; a DataLoader has its own.
        smallest: Fewest rows of a batch in a process; shorter ones are left out.
        shuffle: Another order every epoch; a DataLoader has its own.

    Attributes:
        source: What was given.
        num_data: Number of examples; of ready batches without a dataset those of this process.
        steps_per_epoch: Batches of an epoch.
        batch_size: Rows of a global batch.

    Example:
        >>> x = torch.arange(6.0)
        >>> batches = Batches((x, x), batch_size=4, seed=0, shuffle=False)
        >>> [inputs.tolist() for inputs, _ in batches.epoch(0)]
        [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
        >>> [inputs.tolist() for inputs, _ in batches.epoch(0, start=1)]
        [[4.0, 5.0]]
    """

    def __init__(  # noqa: PLR0913
        self,
        train: Any,
        *,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
        smallest: int = 1,
        shuffle: bool = True,
    ) -> None:
        check_sizes(batch_size, rank, world, smallest)
        check_whole("workers", workers, least=0)
        self.source = train
        self._order = {
            "batch_size": batch_size,
            "seed": seed,
            "rank": rank,
            "world": world,
            "smallest": smallest,
            "shuffle": shuffle,
        }
        self.reader = self._reader(train, workers)
        self.num_data = self.reader.num_data
        self.steps_per_epoch = self.reader.steps
        self.batch_size = self.reader.batch_size

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches (inputs, targets) of an epoch from batch `start` on, this process's rows."""
        if number < 0 or not 0 <= start <= self.steps_per_epoch:
            raise ConfigError(
                f"epoch {number} from batch {start} on does not exist: expected an epoch of at "
                f"least 0 and a start of 0 to {self.steps_per_epoch}"
            )
        return self.reader.epoch(number, start)

    def __len__(self) -> int:
        return self.steps_per_epoch

    @property
    def fixed_order(self) -> bool:
        """True where all epochs may have the same batches."""
        order = getattr(self.reader, "order", None)
        return order is None or not order.shuffle

    def _reader(self, train: Any, workers: int) -> Source:
        if isinstance(train, DataLoader):
            return self._of_loader(train)
        if _is_pair_of_tensors(train):
            return self._of_tensors(pair(train))
        if isinstance(train, IterableDataset):
            settings = dataset_settings(workers)
            return self._ready(DataLoader(train, self._order["batch_size"], **settings))
        if isinstance(train, (Tensor, Mapping, str, bytes)) or train is None:
            raise DataError(_not_data(train))
        if hasattr(train, "__getitem__") and not isinstance(train, (list, tuple)):
            return self._of_examples(train, dataset_settings(workers))
        return self._ready(train)

    def _of_tensors(self, data: Batch, **options: Any) -> Source:
        if isinstance(data[0], Bytes):
            return Residents.of(data, Order(len(data[0]), **(self._order | options)))
        return Tensors(Order(common_length(data), **(self._order | options)), data)

    def _of_examples(self, dataset: Any, settings: dict[str, Any], **options: Any) -> Source:
        plain = settings.get("collate_fn", default_collate) is default_collate
        if plain and not settings["pin_memory"] and _holds_a_pair(dataset):
            return self._of_tensors(dataset.tensors, **options)
        return Examples(Order(length(dataset), **(self._order | options)), dataset, settings)

    def _of_loader(self, loader: DataLoader[Any]) -> Source:
        if not _has_plain_order(loader):
            return self._ready(loader)
        return self._of_examples(
            loader.dataset,
            loader_settings(loader),
            batch_size=loader.batch_size,
            shuffle=isinstance(loader.sampler, RandomSampler),
            drop_last=loader.drop_last,
        )

    def _ready(self, batches: Any) -> Source:
        _check_again_readable(batches)
        seed, smallest, world = (self._order[name] for name in ("seed", "smallest", "world"))
        if world > 1 and not isinstance(batches, DataLoader):
            warnings.warn(
                f"ready batches are used as they are, and {world} processes that read the same "
                "ones do the same work: give each its own, or a Dataset or tensors to be cut",
                stacklevel=4,
            )
        sizes = known_sizes(batches, seed, smallest) or counted_sizes(batches, seed, smallest)
        num_data, steps, batch_size = sizes
        if steps < 1:
            raise DataError(
                f"no batches of at least {smallest} rows among the training data: expected one or "
                "more batches (inputs, targets)"
            )
        return Ready(batches, seed, smallest, num_data, steps, batch_size)


def num_elements(train: Any, likelihood: Likelihood) -> int:
    """The number of data that divides the KL: examples, or labelled elements of dense targets.

    Cost: one look at a batch, and a pass over the data where targets are dense and labels may be
    ignored (segmentation, tokens), or where that batch has rows without a label, unless they are
    tensors in memory.

    Args:
        train: Training data or their `Batches`, whose workers are then used.
        likelihood: Decides which elements count (`ignore_index`) and whether a row is one datum.

    Example:
        >>> import leanbayes as lb
        >>> maps = torch.tensor([[[0, 1], [2, -100]]])
        >>> num_elements((torch.zeros(1, 3, 2, 2), maps), lb.Categorical())
        3
    """
    batches = train if isinstance(train, Batches) else Batches(train, batch_size=128, seed=0)
    reader = batches.reader
    first = reader.first()
    _check_targets(first[1])
    in_memory = isinstance(reader, Tensors | Residents)
    if not in_memory and _one_a_row(first) and _all_count(first, likelihood):
        return batches.num_data
    if _sums_rows(first[1], likelihood):
        return batches.num_data
    if _all_alike(reader, likelihood):
        return batches.num_data * _labelled(first[1][:1], likelihood)
    rows = total = 0
    for targets in _targets_of(reader):
        rows, total = rows + len(targets), total + _labelled(targets, likelihood)
    if total < 1:
        raise DataError("no target has a label: all are ignored; expected at least one")
    # A sampler may draw some examples twice and others not, or those of its process alone.
    return total if rows == batches.num_data else max(1, round(total * batches.num_data / rows))


def _check_targets(targets: Any) -> None:
    if not isinstance(targets, Tensor):
        raise DataError(
            f"the targets of a batch are a {type(targets).__name__}, expected a tensor of as many "
            "rows as the inputs: write torch.tensor(targets) in the collate_fn"
        )


def _one_a_row(batch: Batch) -> bool:
    return bool(batch[1].numel() == rows_of(batch))


def _all_count(batch: Batch, likelihood: Likelihood) -> bool:
    """True where every row of a batch has a label."""
    if not isinstance(likelihood, Categorical):
        return True
    return _labelled(batch[1], likelihood) == rows_of(batch)


def _targets_of(reader: Source) -> Iterable[Tensor]:
    if isinstance(reader, Residents):  # without making images of bytes
        return [reader.targets]
    return (targets for _, targets in reader.every())


def _sums_rows(targets: Tensor, likelihood: Likelihood) -> bool:
    """True where the log-probability of a row is one number, tried with targets as outputs."""
    if isinstance(likelihood, Categorical):
        return False
    if isinstance(likelihood, RealTargets):
        return targets.dim() <= 2
    device = next((t.device for t in _tensors_of(likelihood)), targets.device)
    row = targets[:1].to(device)
    try:
        return likelihood.log_prob(row.float(), row).numel() == 1
    except Exception:  # outputs of another shape: an element is the safer guess
        return False


def _tensors_of(likelihood: Likelihood) -> Iterable[Tensor]:
    return chain(likelihood.parameters(), likelihood.buffers())


def _all_alike(reader: Source, likelihood: Likelihood) -> bool:
    """Examples of one shape, all of whose elements count."""
    alike = isinstance(reader, Examples) and reader.collate is default_collate
    return alike and type(likelihood).count in (Likelihood.count, RealTargets.count)


def _labelled(targets: Tensor, likelihood: Likelihood) -> int:
    """What the likelihood counts in a batch, of which it has to see the shape only."""
    return int(likelihood.count(torch.empty(targets.shape, device="meta"), targets))


def _is_pair_of_tensors(train: Any) -> bool:
    if not isinstance(train, tuple) or len(train) != 2:
        return False
    if type(train[1]).__module__ == "numpy":
        raise DataError("targets are a numpy array; write torch.from_numpy(array) for all arrays")
    return isinstance(train[1], Tensor)


def _holds_a_pair(dataset: Any) -> bool:
    return type(dataset) is TensorDataset and len(dataset.tensors) == 2


def _has_plain_order(loader: DataLoader[Any]) -> bool:
    """True where a DataLoader reads every example once an epoch, by its default samplers."""
    ours = type(loader) is DataLoader and type(loader.batch_sampler) is BatchSampler
    if not ours or loader.batch_size is None or isinstance(loader.dataset, IterableDataset):
        return False
    sampler: Any = loader.sampler
    if type(sampler) not in (SequentialSampler, RandomSampler):
        return False
    return not getattr(sampler, "replacement", False) and len(sampler) == length(loader.dataset)


def _not_data(found: Any) -> str:
    own = " (write data.train)" if hasattr(found, "train") else ""
    own = " (write (data.x_train, data.y_train))" if hasattr(found, "x_train") else own
    return f"training data are a {type(found).__name__}{own}; expected {KINDS}"


def _check_again_readable(batches: Any) -> None:
    if not isinstance(batches, Iterable):
        raise DataError(_not_data(batches))
    if isinstance(batches, Iterator):
        raise DataError(
            f"a {type(batches).__name__} can be read once only, and training reads its data every "
            "epoch: write list(batches), or a class whose __iter__ starts anew"
        )
