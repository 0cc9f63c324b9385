"""What a training run computes: operations of the network counted, those of the noise added.

`torch.utils.flop_counter` counts the matrix products of one forward and one backward pass of the
deterministic network on a batch, f and b (a multiply-add is two operations; the gradient of the
images is not needed and not computed, so b < 2 f). Norms, activations, loss and optimiser are left
out for all methods alike. A step with N draws costs

    N (f + b) + k (5 N + 11)

for k random entries: a draw makes a normal number, multiplies and adds, and its gradient does the
latter two again (5); once a step there are the scale and its derivative, the product of the latter
with the gradient (3), and the gradient of the KL in mean (2) and scale (6); an elementary function
counts as one. Choosing the entries costs f + b a batch, one epoch. The paper (its appendix C)
instead charges (1 + r) (N + 2) f for a step at rate r, 2 (N + 2) f for all entries and 3 f for the
network itself, as if the backward pass were needed once for all draws: `paper_flops`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

PER_DRAW, PER_STEP = 5, 11


@dataclass(frozen=True)
class Pass:
    """Operations of a pass over one batch.

    Attributes:
        forward: Of the forward pass.
        backward: Of the gradients of all parameters.
    """

    forward: int
    backward: int

    @property
    def both(self) -> int:
        """A deterministic training step."""
        return self.forward + self.backward

    def step(self, draws: int, entries: int) -> int:
        """A training step of `draws` draws of `entries` random entries."""
        return draws * self.both + entries * (PER_DRAW * draws + PER_STEP)

    def paper_step(self, draws: int, rate: float) -> float:
        """The paper's charge for a step: 3 f at rate 0, (1 + r) (N + 2) f else."""
        return 3.0 * self.forward if rate == 0 else (1 + rate) * (draws + 2) * self.forward


def count_pass(net: nn.Module, x: Tensor) -> Pass:
    """Count a pass of a classifier on a batch of these inputs.

    Example:
        >>> count_pass(nn.Linear(4, 3), torch.zeros(5, 4))
        Pass(forward=120, backward=120)
    """
    with FlopCounterMode(display=False) as forward:
        loss = cross_entropy(net(x), torch.zeros(len(x), dtype=torch.long, device=x.device))
    with FlopCounterMode(display=False) as backward:
        torch.autograd.grad(loss, [p for p in net.parameters() if p.requires_grad])
    return Pass(forward.get_total_flops(), backward.get_total_flops())
