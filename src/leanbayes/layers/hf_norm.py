"""Host of the RMSNorms of Hugging Face's `transformers`, of which every model has a class.

They are known by their names (`layers/named.py`); nothing is imported for them.
"""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from leanbayes import ops
from leanbayes.layers.base import original_class
from leanbayes.layers.norm import NormHost
from leanbayes.layers.own_forward import own_forward

NOT_BY_ROW = "its forward does not take a weight a row, so no draws can be put into it"


class BayesianHFNorm(NormHost):
    """`x / rms(x) * w`, or whatever the layer's own forward is, with w drawn.

    The forward runs once, on a weight a row [D * R, 1, ..., C] where a stock layer has [C]. That it
    multiplies by element, so that this is right, is tried on numbers before the conversion.
    """

    stock: ClassVar[type[nn.Module]] = nn.Module  # known by name: every layer has a joint class

    @classmethod
    def refusal(cls, layer: nn.Module) -> str | None:
        """A forward that does with a weight a row something else than with each weight alone."""
        try:
            return None if _takes_a_weight_a_row(layer, list(cls.tensors(layer))) else NOT_BY_ROW
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
            return NOT_BY_ROW

    @classmethod
    def reinitialise(cls, layer: nn.Module) -> bool:
        """Multiply by 1 and add 0: a weight of 1, or of 0 where the layer adds 1 to it."""
        tensors = cls.tensors(layer)
        rows = _rows(layer, next(iter(tensors)))
        zeros = {slot: torch.zeros_like(rows[0, 0]) for slot in tensors}
        with torch.no_grad():
            adds_one = bool(_probed(layer, rows, zeros).any())
            for slot, tensor in tensors.items():
                tensor.fill_(float(slot == "weight" and not adds_one))
        return True

    def forward(self, x: Tensor, *gates: Any, **options: Any) -> Tensor:
        """Apply the layer to rows [D * R, ..., C]; a gate has the rows of x."""
        drawn = {slot: ops.by_row(self.form(slot), x) for slot in self.tensor_names}
        return self.masked(own_forward(original_class(self), self, (x, *gates), drawn, options))


def _takes_a_weight_a_row(layer: nn.Module, slots: list[str]) -> bool:
    """Two rows with a weight each in one call, against a call for each of them."""
    rows = _rows(layer, slots[0])
    drawn = {slot: _numbers(1, 2, 2, 1, *rows.shape[2:]) for slot in slots}
    with torch.no_grad():
        together = _probed(layer, rows, drawn)
        apart = [
            _probed(layer, rows[[row]], {slot: value[row, 0] for slot, value in drawn.items()})
            for row in range(2)
        ]
    return torch.allclose(together, torch.cat(apart), rtol=1e-5, atol=1e-6)


def _rows(layer: nn.Module, slot: str) -> Tensor:
    """Two rows of three tokens, of the shape of a parameter."""
    parameter = layer._parameters[slot]
    assert parameter is not None
    return _numbers(-1, 2, 2, 3, *parameter.shape)


def _probed(layer: nn.Module, x: Tensor, drawn: dict[str, Tensor]) -> Tensor:
    """The own forward with x for every tensor that it takes: a gate is one."""
    named = signature(type(layer).forward).parameters.values()
    count = sum(p.kind == Parameter.POSITIONAL_OR_KEYWORD for p in named) - 1  # one is the layer
    return own_forward(type(layer), layer, [x] * count, drawn)


def _numbers(start: float, end: float, *shape: int) -> Tensor:
    count = torch.Size(shape).numel()
    return torch.linspace(start, end, count, dtype=torch.float32, device="cpu").reshape(shape)
