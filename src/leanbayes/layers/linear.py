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
    integrates: ClassVar[bool] = True
    masks_output: ClassVar[bool] = True

    def ask(self, slot: str) -> Ask:
        """Flipout signs for the weight."""
        return Ask(signs=(self.out_features, self.in_features)) if slot == "weight" else PLAIN

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to rows [D * R, ..., I]."""
        # Integrating the noise out is exact for one row a draw; tokens of a row share a weight.
        x = self.rows_of(input, 1)
        local = x.dim() == 2 and x.shape[0] == self.scope.draws("row")
        weight = self.form("weight", self.ask("weight")._replace(local=local))
        assert weight is not None
        before, after = self.factor("in_scale", x), self.factor("out_scale", x)
        weight, before, after = ops.with_factors(x, weight, before, after, first=False, groups=1)
        batched, x = x is input, ops.scaled(x, before, -1)
        if after is None:
            y = ops.linear(x, weight, self.bias_form(weight))
        else:
            y = ops.added(ops.scaled(ops.linear(x, weight, None), after, -1), self.form("bias"), -1)
        y = ops.scaled(y, self.factor("out_mask", y), -1)
        return y if batched else y[0]

    @classmethod
    def widths(cls, layer: nn.Module) -> tuple[int, int]:
        """Features in and out."""
        assert isinstance(layer, nn.Linear)
        return layer.in_features, layer.out_features

    def absorb(self, slot: str, factor: Tensor) -> None:
        """Scale columns by an input factor, rows by an output factor."""
        self.weight.copy_(ops.channel_scaled(self.weight, factor, first=slot == "out_scale"))

    def bias_form(self, weight: Form) -> Form | None:
        """The bias, integrated out together with the weight where that is."""
        return self.form("bias", Ask(local=isinstance(weight, Moments)))
