"""Features by Monte Carlo: what a layer sees or gives, averaged over draws of the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from leanbayes.arguments import arguments_checked
from leanbayes.batches import batches_of
from leanbayes.errors import ConfigError
from leanbayes.likelihood import Gaussian
from leanbayes.model import BayesianModel
from leanbayes.modes import predicting, uncompiled
from leanbayes.plan import Plan, Run, call, count_rows, fold
from leanbayes.predict import Limits, Sampler, warn_unfitted
from leanbayes.prediction import Regression
from leanbayes.untouched import padded


def predict_features(
    model: nn.Module,
    inputs: Any,
    *,
    layer: str | None = None,
    samples: int | None = None,
    seed: int | None = None,
    normalise: bool = True,
) -> Tensor:
    """The posterior mean of a layer's features, `mean_s h(x, w_s)`, of length 1 if normalised.

    Draws are those of `lb.predict` with the same seed. Cost: one pass a sample.

    Args:
        model: A BayesianModel, or its DDP, FSDP2 or compiled wrapper.
        inputs: As for `lb.predict`: a tensor, a tuple, a dict, or a loader.
        layer: Name of the layer whose output is wanted; by default what enters the output layer
            (`model.report.output`). Where it runs more than once a pass, the last run counts.
        samples: Draws an example; by default as many as `lb.predict` takes.
        seed: Key of the draws; without one it is taken from the global generator.
        normalise: Divide each row by its Euclidean norm, as cosine scores (`lb.verify`) need it.

    Returns:
        Features in float64, a row an example, [B, ...].

    Example:
        >>> import leanbayes as lb, torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> model = lb.bayesianize(net, lb.MeanField())
        >>> lb.predict_features(model, torch.randn(5, 4), seed=0).square().sum(1).sqrt().round()
        tensor([1., 1., 1., 1., 1.], dtype=torch.float64)
    """
    chosen = Sampler.of(model, Gaussian(), samples, seed)  # its mean is that of plain numbers
    warn_unfitted(chosen.inner)
    tap = Tap.of(chosen.inner, layer)
    sampler = FeatureSampler(
        chosen.inner, chosen.inner, chosen.likelihood, chosen.weights, chosen.seed, tap=tap
    )
    mean = _mean(sampler, inputs)
    return F.normalize(mean.flatten(1), dim=1).reshape(mean.shape) if normalise else mean


def _mean(sampler: FeatureSampler, inputs: Any) -> Tensor:
    inner, limits = sampler.inner, Limits(False, None, 2**30, None)
    with predicting(inner), uncompiled(inner), padded(inner), sampler.drawing(), sampler.tap.open():
        parts = []
        for batch in batches_of(inputs, inner):
            with arguments_checked(inner.net, batch):
                parts += [sampler.predict(piece, limits) for piece in sampler.pieces(batch, limits)]
    if not parts:
        raise ConfigError("nothing to predict: the loader gave no batch")
    means = [part.mean for part in parts if isinstance(part, Regression)]
    return torch.cat(means)


@dataclass(frozen=True)
class Tap:
    """Where features are taken: in front of a layer, or behind it."""

    module: nn.Module
    name: str
    entering: bool
    seen: list[Any] = field(default_factory=list)

    @staticmethod
    def of(model: BayesianModel, layer: str | None) -> Tap:
        """The named layer's output, or the input of the output layer."""
        name = model.report.output if layer is None else layer
        if name is None:
            raise ConfigError(
                "this network has no layer that counts as its output: name one, "
                "lb.predict_features(..., layer='fc1')"
            )
        try:
            return Tap(model.net.get_submodule(name), name, entering=layer is None)
        except AttributeError:
            raise ConfigError(_no_such_layer(model.net, name)) from None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Within it every pass leaves its features; the hook goes whatever happens."""
        if self.entering:
            handle = self.module.register_forward_pre_hook(self._before, with_kwargs=True)
        else:
            handle = self.module.register_forward_hook(self._after)
        try:
            yield
        finally:
            handle.remove()
            self.seen.clear()

    def take(self) -> Tensor:
        """The features of the pass that has just ended."""
        tensors = [x for x in pytree.tree_leaves(self.seen[-1:]) if isinstance(x, Tensor)]
        self.seen.clear()
        if not tensors:
            raise ConfigError(
                f"layer '{self.name}' did not run, or has no tensor to give: name one of the "
                "layers that a pass goes through, lb.predict_features(..., layer='fc1')"
            )
        return tensors[0]

    def _before(self, _module: nn.Module, args: Any, kwargs: Any) -> None:
        self.seen[:] = [(args, kwargs)]

    def _after(self, _module: nn.Module, _args: Any, output: Any) -> None:
        self.seen[:] = [output]


@dataclass(frozen=True)
class FeatureSampler(Sampler):
    """Samples whose outputs are the features at a tap."""

    tap: Tap = field(kw_only=True)

    @cached_property
    def heads(self) -> int:
        """Copies of an output layer lie behind the features: one pass a sample will do."""
        return 1

    def _run(self, batch: Any, limits: Limits) -> Run:  # noqa: ARG002
        # Always the whole pass: a trunk that runs once for all samples would leave once only.
        def run(plan: Plan, samples: int) -> Tensor:
            call(self.inner, fold(batch, samples), plan=plan)
            features = self.tap.take()
            self._check_rows(features, samples * count_rows((batch,), {}))
            return features

        return run

    def _check_rows(self, features: Tensor, rows: int) -> None:
        found = features.shape[0] if features.dim() else 0
        if not self.inner.sequence_first and found != rows:
            raise ConfigError(
                f"the features at '{self.tap.name}' have shape {tuple(features.shape)}: expected "
                f"a row an example, {rows} in dim 0. Name another layer with layer=..."
            )


def _no_such_layer(net: nn.Module, name: str) -> str:
    names = [n for n, _ in net.named_modules() if n and ".slots" not in f".{n}"]
    near = get_close_matches(name, names, n=3) or names[-5:]
    return f"the network has no layer '{name}'; expected a name such as {', '.join(near)}"
