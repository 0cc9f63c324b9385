"""Host of Hugging Face's `Conv1D`, the linear layer of GPT-2: a weight that lies the other way.

The type is known by its name, `transformers.pytorch_utils.Conv1D`; nothing is imported for it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from leanbayes.forms import Ask, Flipped, Form, Moments, PerDraw, Selected, Shared
from leanbayes.layers.base import PLAIN, Host
from leanbayes.layers.linear import BayesianLinear


class BayesianHFConv1D(Host):
    """`y = x W + b` with W [I, O] and b drawn: a Linear whose draws are transposed on the way."""

    kind: ClassVar[str] = "linear"
    stock: ClassVar[type[nn.Module]] = nn.Module  # known by name: every layer has a joint class
    masks_output: ClassVar[bool] = True

    weight: Tensor
    bias_form: Any = BayesianLinear.bias_form
    _linear: Any = BayesianLinear.forward

    @classmethod
    def input_dim(cls, layer: nn.Module) -> int:  # noqa: ARG003
        """The weight is [I, O]."""
        return 0

    def ask(self, slot: str) -> Ask:
        """Flipout signs for the weight, in the order of its dimensions."""
        if slot != "weight":
            return PLAIN
        return Ask(signs=(self.weight.shape[0], self.weight.shape[1]))

    def form(self, slot: str, ask: Ask = PLAIN) -> Form | None:
        """The tensor of a slot as the pass under way uses it, the weight as [O, I]."""
        form = super().form(slot, ask)
        return form if slot != "weight" or form is None else transposed(form)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to rows [D * R, ..., I]."""
        y: Tensor = self._linear(x)
        return y

    @classmethod
    def widths(cls, layer: nn.Module) -> tuple[int, int]:
        """Features in and out."""
        inputs, outputs = layer.weight.shape  # type: ignore[misc]
        return inputs, outputs

    def absorb(self, slot: str, factor: Tensor) -> None:
        """Scale rows by an input factor, columns by an output factor."""
        self.weight.mul_(factor[:, None] if slot == "in_scale" else factor)


def transposed(form: Form) -> Form:
    """The draw of the transposed matrix."""
    if isinstance(form, Shared):
        return Shared(form.value.T)
    if isinstance(form, PerDraw):
        return PerDraw(form.value.mT)
    if isinstance(form, Flipped):
        assert form.sign0 is not None
        return Flipped(form.mean.T, form.delta.T, form.sign1, form.sign0)
    if isinstance(form, Moments):
        return Moments(form.mean.T, form.variance.T)
    if isinstance(form, Selected):
        return form._replace(values=form.values.mT)
    base, left, right = form.base, form.left, form.right
    picked = None if form.picked is None else form.picked[::-1]
    return form._replace(base=base.T, left=right.mT, right=left.mT, picked=picked)
