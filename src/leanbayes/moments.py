"""What goes into every BatchNorm over a loader: means and variances, batches merged exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree

from leanbayes.arguments import refuse_examples
from leanbayes.devices import device_of
from leanbayes.errors import ConfigError
from leanbayes.untouched import kept_modes

Run = Callable[[Any], Any]  # a pass over the inputs of one batch


def write_statistics(model: nn.Module, loader: Iterable[Any], run: Run) -> int:
    """Make the moments the running statistics; the number of layers that have some."""
    found, batches = moments_of(model, loader, run)
    for layer, moments in found.items():
        moments.write(layer, batches)
    return len(found)


def moments_of(
    model: nn.Module, loader: Iterable[Any], run: Run
) -> tuple[dict[_BatchNorm, Moments], int]:
    """Moments of the inputs of every BatchNorm over a loader, and its batches; nothing is written.

    Args:
        model: Its modes are those of evaluation meanwhile, but for the BatchNorms.
        loader: Batches; of a tuple or list the first entry is the input.
        run: A pass of the model over such inputs.
    """
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if not layers:
        return {}, 0
    moments = [Moments() for _ in layers]
    with _watching(model, layers, moments), torch.no_grad():
        batches = _run(model, loader, run)
    return dict(zip(layers, moments, strict=True)), batches


class Moments:
    """Count, mean and sum of squared deviations by channel, merged batch by batch."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Tensor | None = None
        self.squares: Tensor | None = None

    def add(self, x: Tensor) -> None:
        """Merge the rows of one input, [B, C, ...]."""
        wide = torch.float32 if x.device.type == "mps" else torch.float64
        values = x.detach().to(wide).transpose(0, 1).flatten(1)
        count, mean = values.shape[1], values.mean(1)
        squares = (values - mean[:, None]).square().sum(1)
        if self.mean is None or self.squares is None:
            self.count, self.mean, self.squares = count, mean, squares
            return
        total, shift = self.count + count, mean - self.mean
        self.squares += squares + shift.square() * (self.count * count / total)
        self.mean += shift * (count / total)
        self.count = total

    def values(self) -> Tensor | None:
        """Mean and unbiased variance, [2, C]; None where nothing was added."""
        if self.mean is None or self.squares is None:
            return None
        return torch.stack([self.mean, self.squares / max(self.count - 1, 1)])

    def write(self, layer: _BatchNorm, batches: int) -> None:
        """Make them the running statistics; a layer that never ran keeps its own."""
        if (values := self.values()) is None:
            return
        assert layer.running_mean is not None
        assert layer.running_var is not None
        layer.running_mean.copy_(values[0])
        layer.running_var.copy_(values[1])
        if layer.num_batches_tracked is not None:
            layer.num_batches_tracked.fill_(batches)


def _run(model: nn.Module, loader: Iterable[Any], run: Run) -> int:
    device = device_of(model)
    batches = 0
    refuse_examples(loader)
    for item in loader:
        inputs = item[0] if isinstance(item, (tuple, list)) else item
        here = pytree.tree_map_only(Tensor, lambda x: x.to(device), inputs)
        run(here)
        batches += 1
    if not batches:
        raise ConfigError("the loader gave no batches; expected at least one to take statistics of")
    return batches


def _noting(found: Moments) -> Callable[..., None]:
    """A hook that takes the input of a BatchNorm, by position or by keyword."""
    return lambda _, args, kwargs: found.add(args[0] if args else kwargs["input"])


@contextmanager
def _watching(model: nn.Module, layers: list[_BatchNorm], moments: list[Moments]) -> Iterator[None]:
    """Evaluation mode, hence no draws but of a plan, but for the BatchNorms: inputs are noted.

    Their own running statistics move along and come back should a pass fail.
    """
    before = [(b, b.clone()) for layer in layers for b in layer.buffers(recurse=False)]
    handles = [
        layer.register_forward_pre_hook(_noting(found), with_kwargs=True)
        for layer, found in zip(layers, moments, strict=True)
    ]
    try:
        with kept_modes(model):
            model.eval()
            for layer in layers:
                layer.training = True
            yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)
        for handle in handles:
            handle.remove()
