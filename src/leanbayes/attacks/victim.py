"""The predictive under attack: its draws with gradients, and the slope of its loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from leanbayes.attacks.ball import by_row
from leanbayes.devices import device_of
from leanbayes.enumeration import enumerated
from leanbayes.errors import ConfigError
from leanbayes.likelihood import Categorical, Likelihood, tensor_of
from leanbayes.model import BayesianModel, is_sharded, unwrap
from leanbayes.modes import evaluating, mixes_rows, uncompiled
from leanbayes.noise import KeyedNoise
from leanbayes.plan import Plan, unfold
from leanbayes.predict import Sampler

Average = Literal["probabilities", "loss"]
Outputs = Callable[[Tensor, int, int], Tensor]  # (inputs, step, draw) -> [heads, B, ...]
Term = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Victim:
    """Draws of a network, their weights, and the targets that they shall miss.

    Attributes:
        net: What is put into evaluation mode.
        outputs: Of the heads of a draw.
        likelihood: Reads outputs; class weights are left out, as in prediction.
        weights: Of every head of every draw, [S, H].
        seed: Of everything that is drawn.
        average: Of probabilities, or of losses.
        scale: From pixels to inputs.
    """

    net: nn.Module
    outputs: Outputs
    likelihood: Likelihood
    weights: Tensor
    seed: int
    average: Average = "probabilities"
    scale: Callable[[Tensor], Tensor] = lambda pixels: pixels

    @staticmethod
    def of(
        model: nn.Module,
        likelihood: Likelihood | None,
        samples: int | None,
        seed: int | None,
        *,
        average: Average = "probabilities",
        scale: Callable[[Tensor], Tensor] = lambda pixels: pixels,
    ) -> Victim:
        """Fill in the defaults, for Bayesian networks and for plain ones."""
        if average not in ("probabilities", "loss"):
            raise ConfigError(f"average is 'probabilities' or 'loss', found {average!r}")
        inner = _inner(model)
        found = (
            _plain(model, likelihood, seed)
            if inner is None
            else _bayesian(Sampler.of(inner, likelihood, samples, seed))
        )
        return replace(found, average=average, scale=scale)

    @property
    def device(self) -> torch.device:
        """Where the network lies."""
        return device_of(self.net)

    @property
    def mixes(self) -> bool:
        """True where the rows of a pass belong together."""
        return getattr(self.net, "sequence_first", False) or mixes_rows(self.net)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Evaluation mode, nothing compiled; every module's own mode comes back."""
        net = self.net
        ahead: AbstractContextManager[None] = nullcontext()
        if isinstance(net, BayesianModel) and not is_sharded(net):
            ahead = net.drawing_ahead()
        with evaluating(net), uncompiled(net), ahead:
            yield

    def log_prob(self, pixels: Tensor, y: Tensor, step: int = 0) -> Tensor:
        """`ln sum_s a_s p(y | x, w_s)` of the draws of a step, by datum, in one graph."""
        return torch.logsumexp(
            torch.cat([term + w.log() for term, w in self._terms(pixels, y, step)]), 0
        )

    def slope(self, pixels: Tensor, y: Tensor, step: int) -> Tensor:
        """Gradient of the loss by the pixels."""
        leaf = pixels.detach().requires_grad_(True)
        if self.average == "loss":
            terms = self._terms(leaf, y, step)
            return -torch.stack([_gradient((w * term).sum(), leaf) for term, w in terms]).sum(0)
        if self.mixes or y.dim() > 1:
            return -_gradient(self.log_prob(leaf, y, step).sum(), leaf)
        return self._streamed(leaf, y, step)

    def _streamed(self, leaf: Tensor, y: Tensor, step: int) -> Tensor:
        """The same draw by draw, for one datum a row: rows are weighed after their gradients.

        With l_s = ln a_s p_s: grad ln sum_s exp(l_s) = sum_s exp(l_s) grad l_s / sum_s exp(l_s).
        """
        top = leaf.new_full((len(leaf),), -torch.inf)
        total, slope = torch.zeros_like(top), torch.zeros_like(leaf)
        for term, w in self._terms(leaf, y, step):
            value = torch.logsumexp((term + w.log()).reshape(len(term), len(leaf)), 0)
            own = _gradient(value.sum(), leaf)
            value = value.detach().to(top)
            higher = torch.maximum(top, value)
            old, new = (top - higher).exp(), (value - higher).exp()
            total = total * old + new
            slope = slope * by_row(old, leaf) + own * by_row(new, leaf)
            top = higher
        return -slope / by_row(total, leaf)

    def _terms(self, pixels: Tensor, y: Tensor, step: int) -> Iterator[Term]:
        """Log probability of the targets under every draw, [H, ...], and the weights of it."""
        for draw, weights in enumerate(self.weights):
            outputs = self.outputs(self.scale(pixels), step, draw)
            found = torch.stack([self.likelihood.log_prob(output, y) for output in outputs])
            yield found, weights.to(found).reshape(-1, *(1,) * (found.dim() - 1))


def _inner(model: nn.Module) -> BayesianModel | None:
    try:
        return unwrap(model)
    except TypeError:  # a plain module
        return None


def _plain(model: nn.Module, likelihood: Likelihood | None, seed: int | None) -> Victim:
    key = int(torch.randint(2**62, ()).item()) if seed is None else seed
    chosen = _unweighted(Categorical() if likelihood is None else likelihood)

    def outputs(x: Tensor, _step: int, _draw: int) -> Tensor:
        return tensor_of(model(x)).unsqueeze(0)

    return Victim(model, outputs, chosen, torch.ones(1, 1), key)


def _bayesian(sampler: Sampler) -> Victim:
    inner, heads = sampler.inner, sampler.heads
    weights = sampler.weights if inner.method.is_random else torch.ones(1)

    def outputs(x: Tensor, step: int, draw: int) -> Tensor:
        ids, key = range(draw, draw + 1), step * len(weights) + draw
        noise = KeyedNoise(sampler.seed, range(key, key + 1))
        plan = inner.method.prediction_plan(ids, noise)

        def run(plan: Plan, _samples: int) -> Tensor:
            return tensor_of(inner(x, plan=plan))

        every = run if heads == 1 else enumerated(inner, run, heads)
        found: Tensor = unfold(tensor_of(every(plan, 1)), heads)
        return found

    by_head = weights.unsqueeze(1).expand(-1, heads) / heads
    return Victim(inner, outputs, _unweighted(sampler.likelihood), by_head, sampler.seed)


def _unweighted(likelihood: Likelihood) -> Likelihood:
    """Class weights steer training alone."""
    if isinstance(likelihood, Categorical) and likelihood.class_weights is not None:
        return Categorical(ignore_index=likelihood.ignore_index)
    return likelihood


def _gradient(value: Tensor, leaf: Tensor) -> Tensor:
    """By the pixels alone: no parameter gets one."""
    (found,) = torch.autograd.grad(value, leaf)
    return found
