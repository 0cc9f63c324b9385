"""Let rows be compared one by one in a network that normalises them together in evaluation too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leanbayes.ops import at_least_float32


@contextmanager
def rows_apart(net: nn.Module) -> Iterator[None]:
    """Within it, a BatchNorm without running statistics keeps those of the first input it sees.

    Rows then depend on themselves alone in `eval()`, as in all other networks: what still mixes
    them does so elsewhere.
    """
    layers = [m for m in net.modules() if isinstance(m, _BatchNorm) and m.running_mean is None]
    hooks = [m.register_forward_pre_hook(_keep_statistics, with_kwargs=True) for m in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer in layers:
            layer.running_mean = layer.running_var = None


def _keep_statistics(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if layer.running_mean is not None:
        return
    x: Tensor = args[0] if args else kwargs["input"]
    values = at_least_float32(x.detach()).transpose(0, 1).flatten(1)
    variance, mean = torch.var_mean(values, 1, correction=0)
    like = x if layer.weight is None else layer.weight
    layer.running_mean, layer.running_var = mean.to(like.dtype), variance.to(like.dtype)
