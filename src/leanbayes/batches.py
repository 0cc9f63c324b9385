"""Inputs of a prediction as batches on the model's device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from leanbayes.devices import device_of
from leanbayes.errors import ConfigError
from leanbayes.plan import as_dict


def batches_of(inputs: Any, model: nn.Module) -> Iterator[Any]:
    """The inputs as batches on the model's device."""
    device = device_of(model)
    single = isinstance(inputs, (Tensor, tuple, list, Mapping)) and not _is_batches(inputs)
    if not single and not isinstance(inputs, Iterable):
        raise ConfigError(
            f"predict takes a tensor, a tuple, a dict or a loader; found {type(inputs).__name__}. "
            "Of a Dataset write torch.utils.data.DataLoader(dataset, batch_size=256)"
        )
    for batch in [inputs] if single else (_without_target(item) for item in inputs):
        yield pytree.tree_map_only(Tensor, lambda x: x.to(device), as_dict(batch))


def _is_batches(inputs: Any) -> bool:
    """True of a list of (inputs, targets) or of dicts; lists of tensors are arguments."""
    batches = (tuple, list, Mapping)
    return isinstance(inputs, list) and all(isinstance(item, batches) for item in inputs)


def _without_target(item: Any) -> Any:
    return item[0] if isinstance(item, (tuple, list)) else item


def row_shapes(batch: Any) -> Any:
    """What two batches have in common whose rows take as much memory."""
    return tuple(
        (leaf.shape[1:], leaf.dtype) if isinstance(leaf, Tensor) else type(leaf)
        for leaf in pytree.tree_leaves(batch)
    )
