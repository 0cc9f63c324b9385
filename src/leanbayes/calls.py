"""What the layers of a network see when it runs on an example: their order, and their rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from leanbayes.arguments import arguments_checked
from leanbayes.plan import call, fold, tensors_in
from leanbayes.untouched import padded, untouched

ROWLESS = "gets the same input for any number of rows (positions, a learned query): no row can draw"
Shape = tuple[int, ...]
Shapes = dict[str, list[Shape | None]]


@dataclass
class Calls:
    """One pass.

    Attributes:
        order: Names of the layers in the order in which they finish.
        shapes: Shapes of the inputs of every layer, call by call.
        types: Types in which the layers compute.
    """

    order: list[str] = field(default_factory=list)
    shapes: Shapes = field(default_factory=lambda: defaultdict(list))
    types: set[torch.dtype] = field(default_factory=set)


def calls_of(net: nn.Module, layers: Mapping[str, nn.Module], inputs: Any) -> Calls:
    """Run the network in `eval()` and look at some of its layers; it stays as it was."""
    seen = Calls()

    def note(name: str) -> Callable[..., None]:
        def noted(_layer: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            seen.order.append(name)
            seen.shapes[name].append(_first_shape((args, kwargs)))
            seen.types.update(x.dtype for x in tensors_in(output))

        return noted

    handles = [
        layer.register_forward_hook(note(name), with_kwargs=True) for name, layer in layers.items()
    ]
    try:
        with untouched(net), padded(net), torch.no_grad(), arguments_checked(net, inputs):
            net.eval()
            call(net, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def rowless(net: nn.Module, layers: Mapping[str, nn.Module], example: Any, seen: Calls) -> set[str]:
    """Layers whose input is the same for twice the rows: it holds no rows at all.

    Two draws cannot be told apart in such an input. An embedding that is given positions as [1, T]
    makes a copy for every row, so that it is none of them.
    """
    return {
        name
        for name, a, b in _pairs(seen, _twice(net, layers, example))
        if a == b and not _is_repeated(layers[name], a)
    }


def off_rows(net: nn.Module, layers: Mapping[str, nn.Module], example: Any) -> list[str]:
    """Layers whose inputs do not grow in dim 0 where the rows do."""
    pairs = _pairs(calls_of(net, layers, example), _twice(net, layers, example))
    names = [name for name, a, b in pairs if b[:1] != tuple(2 * n for n in a[:1])]
    return [name for name in dict.fromkeys(names) if not isinstance(layers[name], nn.Embedding)]


def _twice(net: nn.Module, layers: Mapping[str, nn.Module], example: Any) -> Calls:
    # A network that takes no other number of rows says so where its draws are folded.
    with suppress(Exception):
        return calls_of(net, layers, fold(example, 2))
    return Calls()


def _pairs(once: Calls, twice: Calls) -> Iterator[tuple[str, Shape, Shape]]:
    """The shapes of every call in both passes."""
    for name, shapes in once.shapes.items():
        for a, b in zip(shapes, twice.shapes[name], strict=False):
            if a is not None and b is not None:
                yield name, a, b


def _is_repeated(layer: nn.Module, shape: Shape) -> bool:
    return isinstance(layer, nn.Embedding) and len(shape) > 1 and shape[0] == 1


def _first_shape(arguments: Any) -> Shape | None:
    first = next(iter(tensors_in(arguments)), None)
    return None if first is None else tuple(first.shape)
