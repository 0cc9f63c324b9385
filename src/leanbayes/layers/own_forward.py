"""The forward of a layer itself, run on drawn tensors: for types whose arithmetic is no stock one.

It is exact whatever the type does about precision, layout or `1 + weight`, and stays so in other
versions of its library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn


class _Drawn:
    """A layer as its forward sees it, with other attributes in the place of some."""

    def __init__(self, layer: nn.Module, attributes: Mapping[str, Any]) -> None:
        self._layer_itself = layer
        self._drawn_attributes = attributes

    def __getattr__(self, name: str) -> Any:
        drawn = self._drawn_attributes
        return drawn[name] if name in drawn else getattr(self._layer_itself, name)


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
