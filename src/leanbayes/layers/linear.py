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
        return ops.linear(input, weight, self.bias_form(weight))

    def bias_form(self, weight: Form) -> Form | None:
        """The bias, integrated out together with the weight where that is."""
        return self.form("bias", Ask(local=isinstance(weight, Moments)))
