"""How a model is asked: its draws, and how the rows of a split become inputs of the network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from leanbayes.data import Normalize
from leanbayes.devices import device_of
from leanbayes.errors import ConfigError, DataError
from leanbayes.evaluation.part import Batch
from leanbayes.evaluation.split import Split
from leanbayes.evaluation.suite import Suite
from leanbayes.likelihood import Bernoulli, Likelihood, RealTargets
from leanbayes.model import BayesianModel, unwrap
from leanbayes.predict import predict
from leanbayes.prediction import Prediction

NO_LABEL = -100  # of a likelihood or a suite that says nothing else

ELEMENTS = 2**23  # probabilities of a pass of dense outputs: 64 MB in float64


@dataclass(frozen=True, eq=False)
class Asked:
    """A model, a suite, and the settings that the figures depend on.

    Attributes:
        model: As it was given.
        suite: To evaluate it on.
        likelihood: That reads the outputs.
        samples: Draws a prediction.
        seed: Of draws, noise and attacks.
        batch_size: Rows of a pass.
    """

    model: nn.Module
    suite: Suite
    likelihood: Likelihood
    samples: int
    seed: int
    batch_size: int

    @staticmethod
    def of(
        model: nn.Module,
        suite: Suite,
        likelihood: Likelihood | None,
        samples: int | None,
        seed: int,
        batch_size: int,
    ) -> Asked:
        """Fill in the defaults."""
        if not isinstance(suite, Suite):
            raise ConfigError(
                f"evaluate needs a suite: lb.Suite.of(data, 'standard'); found {type(suite)}"
            )
        inner = unwrap(model)
        chosen = inner.likelihood if likelihood is None else likelihood
        if not isinstance(chosen, Likelihood):
            raise ConfigError(
                "evaluate needs a likelihood to read the outputs: lb.evaluate(..., "
                f"likelihood=lb.Categorical()); found {chosen!r}"
            )
        count = inner.method.default_samples if samples is None else samples
        for name, value in {"samples": count, "batch_size": batch_size}.items():
            if isinstance(value, bool) or value != int(value) or value < 1:
                raise ConfigError(f"{name} must be a whole number of at least 1, found {value!r}")
        fitting = _labelled_as(chosen, suite)
        return Asked(model, fitting, chosen, int(count), seed, int(batch_size))

    @property
    def inner(self) -> BayesianModel:
        """The model without wrappers."""
        return unwrap(self.model)

    @property
    def device(self) -> torch.device:
        """Where the network lies."""
        return device_of(self.inner)

    @property
    def is_random(self) -> bool:
        """False where all draws are one network."""
        return self.inner.method.is_random

    def on(self, split: Split) -> Asked:
        """With the draws that a split asks for."""
        return self if split.samples is None else replace(self, samples=split.samples)

    def rows_of_pass(self, x: Any, keep: bool) -> int:
        """Rows of a batch: of dense outputs so few that their probabilities stay below 64 MB.

        Args:
            x: Some inputs, [B, ...].
            keep: Every sample is kept.
        """
        if self.suite.task != "segmentation" or not isinstance(x, Tensor):
            return self.batch_size
        numbers = max(1, len(self.suite.classes)) * x.shape[2:].numel()
        numbers *= self.samples if keep else 1
        return max(1, min(self.batch_size, ELEMENTS // numbers))

    def inputs(self, split: Split, batch: Batch) -> Any:
        """Rows as the network takes them: on its scale, shifted or attacked."""
        x = batch.x
        if not isinstance(x, Tensor):
            return self._as_it_is(split, x)
        x = rescaled(x.to(self.device), split.scale, self.suite.normalize)
        if split.shift is not None and split.made:
            x = split.shift(x, self.suite.normalize, seed=self.seed, first=batch.first)
        return x if split.attack is None else self._attacked(split, batch, x)

    def _as_it_is(self, split: Split, x: Any) -> Any:
        if (split.shift is not None and split.made) or split.attack is not None:
            raise ConfigError(
                f"split {split.name!r}: shifts and attacks change one tensor of inputs; found "
                f"{type(x).__name__}"
            )
        return x

    def _attacked(self, split: Split, batch: Batch, x: Tensor) -> Tensor:
        assert split.attack is not None
        if batch.y is None:
            raise DataError(f"split {split.name!r}: an attack needs targets")
        return split.attack(
            self.model,
            x,
            batch.y,
            samples=self.samples,
            seed=self.seed,
            likelihood=self.likelihood,
            normalize=self.suite.normalize,
            first=batch.first,
        )

    def predict(self, x: Any, *, keep: bool = False) -> Prediction:
        """The predictive, calibrated if the model is; samples where densities need them."""
        keep = keep or isinstance(self.likelihood, RealTargets)
        found: Prediction = predict(
            self.model,
            x,
            likelihood=self.likelihood,
            samples=self.samples,
            seed=self.seed,
            keep_samples=keep,
        )
        return found


def rescaled(x: Tensor, scale: Normalize | None, own: Normalize | None) -> Tensor:
    """Inputs of one scale on another."""
    if scale == own or not x.is_floating_point():
        return x
    raw = x if scale is None else scale.undo(x)
    return (raw if own is None else own(raw)).to(x.dtype)


def _labelled_as(likelihood: Likelihood, suite: Suite) -> Suite:
    """The suite with what the likelihood says of labels, where the suite says nothing."""
    if isinstance(likelihood, Bernoulli) and suite.task == "regression":
        suite = replace(suite, task="binary")  # answers are floats as often as not
    own = getattr(likelihood, "ignore_index", NO_LABEL)
    if own in (NO_LABEL, suite.ignore_index):
        return suite
    if suite.ignore_index != NO_LABEL:
        raise ConfigError(
            f"the likelihood leaves out label {own} and the suite label {suite.ignore_index}: "
            f"write lb.Categorical(ignore_index={suite.ignore_index}), or data with "
            f"ignore_index={own}"
        )
    return replace(suite, ignore_index=own)
