"""How many rows and samples one pass of prediction may hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from leanbayes.layers.base import Host
from leanbayes.posteriors.base import Posterior

# Live at once in a pass without gradients: input, output and the temporaries of a layer.
LIVE_ACTIVATIONS = 4


class TooLargeError(Exception):
    """A pass was ended because its activations outgrow the memory."""


def bytes_per_row(net: nn.Module, rows: int, run: Callable[[], Any]) -> int:
    """Size of the largest output of any leaf module, a row, seen in one run on `rows` rows."""
    largest = [1]
    with _noting(leaves_of(list(net.modules())), largest.append):
        run()
    return LIVE_ACTIVATIONS * -(-max(largest) // rows)


@contextmanager
def bounded(leaves: Sequence[nn.Module], memory: int) -> Iterator[None]:
    """Within it a pass whose activations outgrow the memory ends by `TooLargeError`."""

    def check(size: int) -> None:
        if LIVE_ACTIVATIONS * size > memory:
            raise TooLargeError

    with _noting(leaves, check):
        yield


@contextmanager
def _noting(leaves: Sequence[nn.Module], note: Callable[[int], None]) -> Iterator[None]:
    """Within it `note` is told the bytes of every output of these modules."""

    def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
        for x in (output,) if isinstance(output, Tensor) else pytree.tree_leaves(output):
            if isinstance(x, Tensor):
                note(x.numel() * x.element_size())

    handles = [leaf.register_forward_hook(hook) for leaf in leaves]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def worth_trying(leaves: Sequence[nn.Module], inputs: Any, rows: int, memory: int) -> bool:
    """True where no output of a layer can be larger than the memory, though several may be.

    A bound for layers that do not raise the resolution: positions of a row times the widest layer.
    """
    own = [p for m in leaves for p in m._parameters.values() if p is not None]
    widest = max((max(p.shape[:2], default=1) * _element(p) for p in own), default=8)
    positions = sum(_positions(x) for x in pytree.tree_leaves(inputs) if has_rows(x, rows))
    return rows * positions * widest <= memory


def _element(parameter: Tensor) -> int:
    """Bytes of a number that a layer gives."""
    size = parameter.element_size()
    return min(size, 2) if torch.is_autocast_enabled(parameter.device.type) else size


def _positions(x: Tensor) -> int:
    """Pixels, tokens or steps of a row, or more; a whole number may be looked up in a table."""
    numbers = x.numel() // max(1, len(x))
    return numbers // min(x.shape[1:]) if x.is_floating_point() and x.dim() > 1 else numbers


def leaves_of(modules: Sequence[nn.Module]) -> Sequence[nn.Module]:
    """Those of a network's modules that compute; the network itself, the first, if none does."""
    return [m for m in modules if _computes(m)] or modules[:1]


def has_rows(x: Any, rows: int) -> bool:
    """True for a tensor with so many rows."""
    return isinstance(x, Tensor) and x.dim() > 0 and x.shape[0] == rows


def _computes(module: nn.Module) -> bool:
    """True for a layer without layers inside; a host has only its posteriors inside."""
    return isinstance(module, Host) or not (module._modules or isinstance(module, Posterior))


def slices(inputs: Any, rows: int, size: int) -> Iterator[Any]:
    """Cut the rows of a pytree into pieces of at most `size`."""
    if rows <= size:
        yield inputs
        return
    for start in range(0, rows, size):
        yield rows_between(inputs, rows, start, start + size)


def rows_between(inputs: Any, rows: int, start: int, stop: int) -> Any:
    """Rows start to stop of every leaf that has rows."""
    return pytree.tree_map_only(Tensor, lambda x: x[start:stop] if has_rows(x, rows) else x, inputs)
