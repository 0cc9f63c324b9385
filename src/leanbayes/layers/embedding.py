"""Host of `nn.Embedding`."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from leanbayes import ops
from leanbayes.forms import Ask
from leanbayes.layers.base import Host


class BayesianEmbedding(Host, nn.Embedding):
    """A table with drawn rows; equal ids within one draw share their noise."""

    kind: ClassVar[str] = "embedding"
    stock: ClassVar[type[nn.Module]] = nn.Embedding
    tensor_names: ClassVar[tuple[str, ...]] = ("weight",)

    @classmethod
    def refusal(cls, layer: nn.Module) -> str | None:
        """Settings that edit the table in forward, or whose gradients are not the objective's."""
        assert isinstance(layer, nn.Embedding)
        if layer.max_norm is not None:
            return "max_norm changes the weight during the forward pass"
        if layer.scale_grad_by_freq:
            return "scale_grad_by_freq gives gradients that are not those of the objective"
        return "sparse gradients cannot pass through a draw" if layer.sparse else None

    @classmethod
    def fixed_row(cls, layer: nn.Module) -> int | None:
        """The padding row has no noise and no KL."""
        assert isinstance(layer, nn.Embedding)
        return layer.padding_idx

    @classmethod
    def input_dim(cls, layer: nn.Module) -> int:  # noqa: ARG003
        """Rows: a look-up is a product with a vector that is 1 at the id."""
        return 0

    def ask(self, slot: str) -> Ask:  # noqa: ARG002
        """Signs on the features suffice: noise of different ids is independent as it is."""
        return Ask(signs=(None, self.embedding_dim))

    def forward(self, input: Tensor) -> Tensor:
        """Look up ids [D * R, ...]."""
        if input.dim() > 1 and input.shape[0] == 1 and not self.scope.plan.mean:
            # Positions given once for all rows, as [1, T]: every row has a draw of its own.
            input = input.expand(max(1, self.scope.rows), *input.shape[1:])
        weight = self.form("weight", self.ask("weight"))
        assert weight is not None
        return ops.embedding(input, weight, self._lookup, self.padding_idx)

    def _lookup(self, ids: Tensor, table: Tensor) -> Tensor:
        return F.embedding(ids, table, self.padding_idx)
