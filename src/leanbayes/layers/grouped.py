"""Host of the layer in which many small networks run side by side."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from leanbayes.layers.conv import BayesianConv1d
from leanbayes.models.grouped import GroupedLinear, products


class BayesianGroupedLinear(BayesianConv1d, GroupedLinear):
    """`GroupedLinear` with a drawn kernel."""

    stock: ClassVar[type[nn.Module]] = GroupedLinear

    def _convolve(
        self, rows: Tensor, weight: Tensor, blocks: int, bias: Tensor | None = None
    ) -> Tensor:
        return products(rows, weight, self.groups * blocks, bias)
