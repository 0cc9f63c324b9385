"""How many examples and batches there are, by lengths where they are known, else by counting."""

from __future__ import annotations

from itertools import islice
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler

from leanbayes.errors import DataError
from leanbayes.train.sources import Batch, epoch_of, pair, rows_of

Sizes = tuple[int, int, int]  # examples, batches of an epoch, rows of a batch


def fewest_rows(net: nn.Module, policy: str, members: int = 1) -> int:
    """Rows that a batch needs, with one at least for each of the members that share it.

    One row has no variance for BatchNorm1d, and torch refuses it; nor has one row of a member,
    where members have statistics of their own.
    """
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm1d) and policy != "frozen"]
    apart = any("statistics" in getattr(norm, "slots", ()) for norm in norms)
    return max(2 if norms else 1, members * (2 if apart else 1))


def common_length(data: Batch) -> int:
    """Examples of tensors, the same for all of them."""
    leaves = pytree.tree_leaves(data)
    strangers = {type(leaf).__name__ for leaf in leaves if not isinstance(leaf, Tensor)}
    if strangers:
        raise DataError(f"expected tensors in (inputs, targets), found {sorted(strangers)}")
    shapes = [tuple(leaf.shape) for leaf in leaves]
    if len(leaves) < 2 or not all(shapes) or len({shape[0] for shape in shapes}) != 1:
        raise DataError(
            f"inputs and targets have the shapes {shapes}; expected tensors with the same number "
            "of examples in dim 0"
        )
    return len(leaves[0])


def length(dataset: Any) -> int:
    """Examples of a dataset."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError) as error:
        raise DataError(
            f"{type(dataset).__name__} has no length: define __len__, the number of its examples, "
            "or give an IterableDataset"
        ) from error


def known_sizes(batches: Any, seed: int, smallest: int) -> Sizes | None:
    """Examples, batches and batch size of a DataLoader that knows them, else None."""
    if not isinstance(batches, DataLoader) or batches.batch_sampler is None:
        return None
    is_stream = isinstance(batches.dataset, IterableDataset)
    drawn = _size(batches.dataset if is_stream else batches.sampler)
    if batches.batch_size is None or drawn is None:
        return None if is_stream else _sizes_of_sampler(batches, seed, smallest)
    full, rest = divmod(drawn, batches.batch_size)
    full = full if batches.batch_size >= smallest else 0
    steps = full + (not batches.drop_last and rest >= smallest)
    return drawn if is_stream else _examples(batches), steps, batches.batch_size


def _sizes_of_sampler(loader: DataLoader[Any], seed: int, smallest: int) -> Sizes | None:
    """Of a loader with a batch_sampler of its own that has a length: indices are read, no data."""
    most = _size(loader.batch_sampler)
    if most is None or _size(loader.dataset) is None or loader.batch_sampler is None:
        return None
    indices = islice(epoch_of(loader.batch_sampler, seed, 0), most)
    rows = [len(batch) for batch in indices]
    return _examples(loader), sum(count >= smallest for count in rows), max(rows, default=0)


def _examples(loader: DataLoader[Any]) -> int:
    """Examples that a loader with a sampler of its own can read: a subset where it says so."""
    sampler: Any = getattr(loader.batch_sampler, "sampler", None)
    if isinstance(sampler, SubsetRandomSampler):
        return len(sampler.indices)
    return length(loader.dataset)


def _size(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def counted_sizes(batches: Any, seed: int, smallest: int) -> Sizes:
    """By one pass over the batches."""
    rows = [rows_of(pair(batch)) for batch in epoch_of(batches, seed, 0)]
    return sum(rows), sum(count >= smallest for count in rows), max(rows, default=0)
