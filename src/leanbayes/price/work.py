"""The works whose price is asked for: a training step and a prediction, of either network."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from leanbayes.budget import rows_between
from leanbayes.convert import collapse
from leanbayes.edit import attach_kl
from leanbayes.groups import param_groups
from leanbayes.likelihood import Likelihood, mean_nll, tensor_of
from leanbayes.model import BayesianModel
from leanbayes.modes import evaluating
from leanbayes.objective import objective
from leanbayes.plan import call, count_rows
from leanbayes.predict import Limits, Sampler, predict
from leanbayes.price.measure import Work
from leanbayes.regularizer import OODRegularizer

RATE = 1e-6  # small: the weights stay where they are, however many steps are taken


@dataclass(frozen=True)
class Bench:
    """A batch, and how networks work on it. Works get copies of networks, so nothing is changed.

    Attributes:
        batch: Inputs and targets, on the device of the networks.
        likelihood: Reads the outputs.
        samples: Draws of a prediction; the method's own number if None.
        options: Of `lb.objective`, such as `samples` of a step.
        dtype: Of autocast; None for none.
        in_turn: A step of every member of an ensemble, one after another.
        regularizer: Of the step.
        ood_rows: OOD inputs of such a step; as many as clean ones if None.
    """

    batch: tuple[Any, Tensor]
    likelihood: Likelihood
    samples: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype | None = None
    in_turn: bool = False
    regularizer: OODRegularizer | None = None
    ood_rows: int | None = None

    def step(self, net: nn.Module) -> Work:
        """Forward, backward and a step of SGD with momentum, the KL as an edit of the gradients."""
        if self.in_turn and isinstance(net, BayesianModel):
            members, alone = net.method.index_members, collapse(deepcopy(net), member=0)
            single = self.step(alone)
            return lambda: [single() for _ in range(members)]
        own, forward = self._training(net)
        likelihood = list(self.likelihood.parameters())
        if isinstance(own, BayesianModel):
            groups = param_groups(own, lr=RATE, likelihood=self.likelihood)
        else:
            groups = [{"params": [p for p in own.parameters() if p.requires_grad] + likelihood}]
        optimizer = torch.optim.SGD(groups, lr=RATE, momentum=0.9)
        handle = attach_kl(optimizer, own, num_data=1) if isinstance(own, BayesianModel) else None

        def step() -> object:
            optimizer.zero_grad()
            torch.autograd.backward(forward())
            optimizer.step()
            return handle  # an edit lives as long as its handle

        return step

    def forward(self, net: nn.Module) -> tuple[Work, list[Tensor]]:
        """The loss of a step, and the tensors that are there before it."""
        if self.in_turn and isinstance(net, BayesianModel):
            net = collapse(deepcopy(net), member=0)
        own, forward = self._training(net)
        inputs = [leaf for leaf in pytree.tree_leaves(self.batch) if isinstance(leaf, Tensor)]
        return forward, [*inputs, *own.parameters(), *own.buffers(), *self.likelihood.parameters()]

    def _training(self, net: nn.Module) -> tuple[nn.Module, Callable[[], Tensor]]:
        own = deepcopy(net).train()
        inner = self._loss if isinstance(own, BayesianModel) else self._plain_loss

        def forward() -> Tensor:
            with self._autocast():
                return inner(own)

        return own, forward

    def _loss(self, model: nn.Module) -> Tensor:
        options = {**self.options, "include_kl": False, "step": 0}
        if self.regularizer is None:
            return objective(model, self.batch, self.likelihood, **options).loss
        likelihood: Any = self.likelihood  # the regulariser itself refuses others
        rows = count_rows((self.batch[0],), {})
        strange = rows_between(self.batch[0], rows, 0, min(self.ood_rows or rows, rows))
        found = self.regularizer.objective(model, self.batch, strange, likelihood, **options)
        return found.loss

    def _plain_loss(self, net: nn.Module) -> Tensor:
        target = self.batch[1]
        log_prob = self.likelihood.log_prob(tensor_of(call(net, self.batch[0])), target)
        return mean_nll(self.likelihood, log_prob, target)

    def prediction(self, net: nn.Module) -> Work:
        """`lb.predict`; of a plain network a pass and what the likelihood makes of its outputs."""
        if isinstance(net, BayesianModel):
            options: dict[str, Any] = {"likelihood": self.likelihood, "samples": self.samples}
            return self._cast(lambda: predict(net, self.batch[0], seed=0, **options))

        def run() -> object:
            with evaluating(net), torch.inference_mode():
                return self._probabilities(net)

        return self._cast(run)

    def counted_prediction(self, net: nn.Module) -> Work:
        """The same for counting: without the pass of two rows that finds out about memory."""

        def run() -> object:
            if not isinstance(net, BayesianModel):
                # With gradients: encoders else take kernels that the counter does not know.
                with evaluating(net), torch.enable_grad():
                    return self._probabilities(net)
            sampler = Sampler.of(net, self.likelihood, self.samples, 0)
            with evaluating(net), torch.no_grad(), sampler.drawing():
                return sampler.predict(self.batch[0], Limits(False, None, 2**62, None))

        return self._cast(run)

    def _probabilities(self, net: nn.Module) -> object:
        output = tensor_of(call(net, self.batch[0]))
        sums = {k: v[0] for k, v in self.likelihood.statistics(output[None]).items()}
        return self.likelihood.prediction(sums, None, torch.ones(1, device=output.device))

    def _cast(self, work: Work) -> Work:
        def run() -> object:
            with self._autocast():
                return work()

        return run

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.dtype is None:
            return nullcontext()
        return torch.autocast(self.batch[1].device.type, self.dtype)

    @property
    def rows(self) -> int:
        """Of the batch."""
        return count_rows((self.batch[0],), {})
