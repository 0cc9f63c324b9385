"""The forward of a layer itself, run on drawn tensors: for types whose arithmetic is no stock one.

It is exact whatever the type does about precision, layout or `1 + weight`, and stays so in other
versions of its library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MethodType
from typing import Any

from torch import Tensor, nn


class _Drawn:
    """A layer as its forward and its other methods see it, with some attributes replaced."""

    def __init__(self, layer: nn.Module, attributes: Mapping[str, Any]) -> None:
        self._layer_itself = layer
        self._drawn_attributes = attributes

    def __getattr__(self, name: str) -> Any:
        layer, drawn = self._layer_itself, self._drawn_attributes
        found = drawn[name] if name in drawn else getattr(layer, name)
        own = isinstance(found, MethodType) and found.__self__ is layer
        return partial(found.__func__, self) if own else found


def own_forward(
    cls: type[nn.Module],
    layer: nn.Module,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
) -> Tensor:
    """What the forward of a class gives for a layer with other attributes than it has."""
    seen: Any = _Drawn(layer, attributes)
    y: Tensor = cls.forward(seen, *inputs, **(options or {}))
    return y
