"""Hosts of convolutions whose kernel is standardised first, as in BiT and hybrid ViTs of `timm`.

The types are known by their names (`layers/named.py`); nothing is imported for them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leanbayes import ops
from leanbayes.forms import Ask, Form, LowRank, PerDraw, Selected, Shared
from leanbayes.layers.base import PLAIN
from leanbayes.layers.conv import BayesianConv2d
from leanbayes.layers.timm import BayesianConv2dSame


class BayesianStdConv2d(BayesianConv2d):
    """`StdConv2d`: the kernel of every output channel less its mean, over its deviation.

    That is not linear in the kernel, so a draw of one is a kernel of its own: no Flipout, and
    `estimator="auto"` draws as `exemplar` does, a kernel a row. It undoes factors on channels of
    the kernel, so that a member with factors could not be turned back: the layer takes none.
    """

    eps: float

    @classmethod
    def factor_sizes(cls, layer: nn.Module) -> dict[str, int]:  # noqa: ARG003
        """None."""
        return {}

    def ask(self, slot: str) -> Ask:  # noqa: ARG002
        """No signs."""
        return PLAIN

    def form(self, slot: str, ask: Ask = PLAIN) -> Form | None:
        """The tensor of a slot as the pass under way uses it, kernels standardised."""
        form = super().form(slot, ask)
        return form if slot != "weight" or form is None else mapped(form, self._standardised)

    def _standardised(self, kernels: Tensor) -> Tensor:
        """Of one or more kernels, [..., O, I, H, W]; the operation is that of timm."""
        rows = kernels.reshape(1, kernels.shape[:-3].numel(), -1)
        normed = F.batch_norm(rows, None, None, training=True, momentum=0.0, eps=self.eps)
        return normed.reshape(kernels.shape)


class BayesianStdConv2dSame(BayesianStdConv2d, BayesianConv2dSame):
    """`StdConv2dSame`: the same behind as many zeros as TensorFlow puts around the rows."""

    same_pad: bool

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to rows [D * R, C, H, W]."""
        own = BayesianConv2dSame if self.same_pad else BayesianConv2d
        return own.forward(self, input)


def mapped(form: Form, function: Callable[[Tensor], Tensor]) -> Form:
    """The form of a function of every draw; draws that share noise by signs have none."""
    if isinstance(form, LowRank):
        form = _explicit(form)
    if isinstance(form, (Shared, PerDraw)):
        return form._replace(value=function(form.value))
    if isinstance(form, Selected):
        return form._replace(values=function(form.values))
    raise TypeError(f"a function of a draw cannot be taken of the form {type(form).__name__}")


def _explicit(form: LowRank) -> PerDraw | Selected:
    """The tensors of all draws, or those of all candidates where these are fewer."""
    draws, candidates = len(form.component), len(form.left)
    if draws >= candidates:
        every = [ops.candidate(form, k) for k in range(candidates)]
        return Selected(torch.stack(every), form.component, form.order)
    left, right = (f.index_select(0, form.component) for f in (form.left, form.right))
    own = form._replace(left=left, right=right)
    return PerDraw(torch.stack([ops.candidate(own, d) for d in range(draws)]))
