"""BatchNorm statistics for weights that no training pass has seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree

from leanbayes.errors import ConfigError
from leanbayes.plan import Plan, call


def refresh_batchnorm(model: nn.Module, loader: Iterable[Any]) -> int:
    """Recompute the running statistics of every BatchNorm over a loader, under the mean network.

    Averaged weights (SWAG, an average of checkpoints) have other activations than the iterates
    whose statistics were kept (Izmailov et al. 2018). A layer gets the mean and the unbiased
    variance of all of its inputs, batches merged exactly (Chan's formula in float64) whatever their
    sizes; as in training, the layers before it normalise by the batch. Momentum, modes and
    gradients stay as they are; dropout is off.

    Cost: one pass over the loader, without gradients.

    Args:
        model: A BayesianModel, its wrapper, or any module.
        loader: Batches; of a tuple or list the first entry is the input.

    Returns:
        Number of layers that were refreshed.

    Example:
        >>> import leanbayes as lb, torch
        >>> net = torch.nn.Sequential(torch.nn.BatchNorm1d(2))
        >>> lb.refresh_batchnorm(net, [(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), None)])
        1
        >>> net[0].running_mean.tolist(), net[0].running_var.tolist()
        ([2.0, 0.0], [2.0, 0.0])
    """
    found, batches = measured_moments(model, loader)
    for layer, moments in found.items():
        moments.write(layer, batches)
    return len(found)


def measured_moments(
    model: nn.Module, loader: Iterable[Any], plan: Plan | None = None
) -> tuple[dict[_BatchNorm, Moments], int]:
    """Moments of the inputs of every BatchNorm over a loader, and its batches; nothing is written.

    Under the mean network, or under a plan of a BayesianModel.
    """
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if not layers:
        return {}, 0
    moments = [Moments() for _ in layers]
    with _watching(model, layers, moments), torch.no_grad():
        batches = _run(model, loader, {} if plan is None else {"plan": plan})
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


def _run(model: nn.Module, loader: Iterable[Any], options: dict[str, Any]) -> int:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    batches = 0
    for item in loader:
        inputs = item[0] if isinstance(item, (tuple, list)) else item
        here = pytree.tree_map_only(Tensor, lambda x: x.to(device), inputs)
        call(model, here, **options)
        batches += 1
    if not batches:
        raise ConfigError("the loader gave no batches; expected at least one to take statistics of")
    return batches


@contextmanager
def _watching(model: nn.Module, layers: list[_BatchNorm], moments: list[Moments]) -> Iterator[None]:
    """Evaluation mode, hence the mean network, but for the BatchNorms, whose inputs are noted.

    Their own running statistics move along and come back should a pass fail.
    """
    modes = [(module, module.training) for module in model.modules()]
    before = [(b, b.clone()) for layer in layers for b in layer.buffers(recurse=False)]
    handles = [
        layer.register_forward_pre_hook(lambda _, args, found=found: found.add(args[0]))
        for layer, found in zip(layers, moments, strict=True)
    ]
    model.eval()
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training
