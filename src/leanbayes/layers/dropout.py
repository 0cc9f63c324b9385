"""Hosts of the network's own dropout layers, whose masks then come from the plan of the pass.

They hold no parameters. Only a method that says so (`Method.takes_dropout`) converts them.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from leanbayes import ops
from leanbayes.forms import Ask
from leanbayes.layers.base import Host, factor_of


class DropoutHost(Host, _DropoutNd):
    """What the four hosts share: the mask in the slot `mask` decides, not the training flag.

    Attributes:
        channel: Which dimension of a row holds the channels that are dropped as a whole, if any.
    """

    kind: ClassVar[str] = "dropout"
    tensor_names: ClassVar[tuple[str, ...]] = ()
    channel: ClassVar[int | None] = 0

    def forward(self, input: Tensor) -> Tensor:
        """Multiply rows [D * R, ...] by a mask a draw; the mean network has none."""
        scope = self.scope
        if scope.plan.mean:
            return input
        if scope.trace is not None:
            scope.trace.append((self, "mask"))
        # The layer has no tensor, so that the activations tell type and device.
        form = self.posterior("mask").form(input, scope, Ask(shape=tuple(input.shape[1:])))
        return ops.scaled(input, factor_of(form), 1)

    @property
    def reference(self) -> Tensor:
        """The layer has no tensor to stand for."""
        return torch.empty(())


class BayesianDropout(DropoutHost, nn.Dropout):
    """`nn.Dropout` with masks by the plan."""

    stock: ClassVar[type[nn.Module]] = nn.Dropout
    channel: ClassVar[int | None] = None


class BayesianDropout1d(DropoutHost, nn.Dropout1d):
    """`nn.Dropout1d` with masks by the plan."""

    stock: ClassVar[type[nn.Module]] = nn.Dropout1d


class BayesianDropout2d(DropoutHost, nn.Dropout2d):
    """`nn.Dropout2d` with masks by the plan."""

    stock: ClassVar[type[nn.Module]] = nn.Dropout2d


class BayesianDropout3d(DropoutHost, nn.Dropout3d):
    """`nn.Dropout3d` with masks by the plan."""

    stock: ClassVar[type[nn.Module]] = nn.Dropout3d
