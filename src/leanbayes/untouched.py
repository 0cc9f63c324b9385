"""Run a network and leave it as it was: its buffers, modes and the random state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Give buffers, modes and random states back as they were."""
    cuda = sorted({b.device.index or 0 for b in model.parameters() if b.device.type == "cuda"})
    with kept_modes(model), torch.random.fork_rng(devices=cuda), kept_buffers(model):
        yield


@contextmanager
def kept_modes(net: nn.Module) -> Iterator[None]:
    """Every module's own mode, training or evaluation, comes back."""
    modes = [(module, module.training) for module in net.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def padded(net: nn.Module) -> Iterator[None]:
    """Within it no encoder packs padded rows: a hook could not read the shape of nested tensors."""
    packing = [m for m in net.modules() if isinstance(m, nn.TransformerEncoder)]
    packing = [m for m in packing if m.use_nested_tensor]
    for module in packing:
        module.use_nested_tensor = False
    try:
        yield
    finally:
        for module in packing:
            module.use_nested_tensor = True


@contextmanager
def kept_buffers(net: nn.Module) -> Iterator[None]:
    """Values that passes write, and tensors that they put in place of buffers, are undone."""
    held = [(m, name, b) for m in net.modules() for name, b in m._buffers.items()]
    values = [(buffer, buffer.clone()) for buffer in net.buffers() if not _is_expanded(buffer)]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in values:
                if buffer.shape != value.shape:  # observers of a quantisation start without values
                    buffer.resize_(value.shape)
                buffer.copy_(value)
        for module, name, before in held:
            _put_back(module, name, before)


def _is_expanded(buffer: Tensor) -> bool:
    """One number stands for several there, and nobody can write into it."""
    strides = buffer.stride() if buffer.layout is torch.strided else ()
    return any(step == 0 and size > 1 for size, step in zip(buffer.shape, strides, strict=False))


def _put_back(module: nn.Module, name: str, buffer: Tensor | None) -> None:
    """A buffer that a forward pass has replaced (`self.count = self.count + 1`).

    One of another shape is a cache that has grown with the input: flags beside it may say so.
    """
    now = module._buffers.get(name)
    if buffer is not None and now is not None and now.shape == buffer.shape:
        module._buffers[name] = buffer
