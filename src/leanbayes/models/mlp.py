"""Multi-layer perceptron."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn


class MLP(nn.Module):
    """A fully connected network with ReLU between its layers.

    Parameters: sum of (inputs + 1) x outputs over the layers. MLP(784, (300, 100), 10), the
    LeNet-300-100 of Y. LeCun et al., "Gradient-Based Learning Applied to Document Recognition",
    Proc. IEEE 1998, has 266,610.

    Args:
        inputs: Features of one example; all dimensions after the first are flattened to them.
        hidden: Width of every hidden layer; none gives a linear model.
        outputs: Outputs of one example.
        norm: Whether a BatchNorm1d stands between each hidden layer and its ReLU.
        hidden_bias: Whether hidden layers have a bias; a norm after them has its own.
        output_bias: Whether the output layer has a bias.

    Example:
        >>> MLP(784, (300, 100), 10).output
        Linear(in_features=100, out_features=10, bias=True)
    """

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        norm: bool = False,
        hidden_bias: bool = True,
        output_bias: bool = True,
    ) -> None:
        super().__init__()
        widths = (inputs, *hidden)
        self.hidden = nn.ModuleList(nn.Linear(i, o, hidden_bias) for i, o in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(o) if norm else nn.Identity() for o in hidden)
        self.output = nn.Linear(widths[-1], outputs, output_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, ...] to [B, outputs]."""
        x = x.flatten(1)
        for layer, norm in zip(self.hidden, self.norms, strict=True):
            x = norm(layer(x)).relu()
        out: Tensor = self.output(x)
        return out
