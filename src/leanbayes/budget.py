"""How many rows and samples one pass of prediction may hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from leanbayes.layers.base import Host
from leanbayes.posteriors.base import Posterior

# Live at once in a pass without gradients: input, output and the temporaries of a layer.
LIVE_ACTIVATIONS = 4


def bytes_per_row(net: nn.Module, rows: int, run: Callable[[], Any]) -> int:
    """Size of the largest output of any leaf module, a row, seen in one run on `rows` rows."""
    largest = [1]

    def note(_module: nn.Module, _inputs: Any, output: Any) -> None:
        tensors = [x for x in pytree.tree_leaves(output) if isinstance(x, Tensor)]
        largest.extend(x.numel() * x.element_size() for x in tensors)

    leaves = [m for m in net.modules() if _computes(m)] or [net]
    handles = [leaf.register_forward_hook(note) for leaf in leaves]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return LIVE_ACTIVATIONS * -(-max(largest) // rows)


def _computes(module: nn.Module) -> bool:
    """True for a layer without layers inside; a host has only its posteriors inside."""
    return isinstance(module, Host) or not (module._modules or isinstance(module, Posterior))


def slices(inputs: Any, rows: int, size: int) -> Iterator[Any]:
    """Cut the rows of a pytree into pieces of at most `size`."""
    if rows <= size:
        yield inputs
        return
    for start in range(0, rows, size):
        yield first_rows(inputs, rows, start, start + size)


def first_rows(inputs: Any, rows: int, start: int, stop: int) -> Any:
    """Rows start to stop of every leaf that has rows."""
    return pytree.tree_map_only(
        Tensor, lambda x: x[start:stop] if x.dim() and x.shape[0] == rows else x, inputs
    )
