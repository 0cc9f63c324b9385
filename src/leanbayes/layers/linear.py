"""Host of `nn.Linear`."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from leanbayes import ops
from leanbayes.forms import Ask, Form, Moments
from leanbayes.layers.base import PLAIN, Host


class BayesianLinear(Host, nn.Linear):
    """`y = x W^T + b` with W and b drawn."""

    kind: ClassVar[str] = "linear"
    stock: ClassVar[type[nn.Module]] = nn.Linear
    masks_output: ClassVar[bool] = True

    def ask(self, slot: str) -> Ask:
        """Flipout signs for the weight."""
        return Ask(signs=(self.out_features, self.in_features)) if slot == "weight" else PLAIN

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to rows [D * R, ..., I]."""
        # Integrating the noise out is exact for one row a draw; tokens of a row share a weight.
        draws = self.scope.draws("row")
        local = input.dim() == 2 and input.shape[0] == draws
        weight = self.form("weight", self.ask("weight")._replace(local=local))
        assert weight is not None
        x = ops.scaled(input, self.factor("in_scale", input), -1)
        if "out_scale" in self.slots:
            y = ops.linear(x, weight, None)
            y = ops.scaled(y, self.factor("out_scale", y), -1)
            y = ops.added(y, self.form("bias"), -1)
        else:
            y = ops.linear(x, weight, self.bias_form(weight))
        return ops.scaled(y, self.factor("out_mask", y), -1)

    @classmethod
    def widths(cls, layer: nn.Module) -> tuple[int, int]:
        """Features in and out."""
        assert isinstance(layer, nn.Linear)
        return layer.in_features, layer.out_features

    def absorb(self, slot: str, factor: Tensor) -> None:
        """Scale columns by an input factor, rows by an output factor."""
        self.weight.mul_(factor if slot == "in_scale" else factor[:, None])

    def bias_form(self, weight: Form) -> Form | None:
        """The bias, integrated out together with the weight where that is."""
        return self.form("bias", Ask(local=isinstance(weight, Moments)))
