"""How outputs give a probability to targets, and what is averaged over samples in prediction."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leanbayes.errors import ConfigError
from leanbayes.prediction import (
    BinaryClassification,
    Classification,
    Prediction,
    Regression,
    entropy,
)

Statistics = dict[str, Tensor]


class Likelihood(nn.Module, ABC):
    """p(y | output). A datum is a row, or an element where targets are dense."""

    @abstractmethod
    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Log probability of every datum; elements without a label give 0."""

    def count(self, log_prob: Tensor, target: Tensor) -> Tensor | int:  # noqa: ARG002
        """Number of data with a label."""
        return log_prob.numel()

    @abstractmethod
    def statistics(self, output: Tensor) -> Statistics:
        """What is averaged over samples, from outputs [S, B, ...], in float64."""

    @abstractmethod
    def samples(self, output: Tensor) -> Tensor:
        """What is kept of each sample when samples are asked for, [S, B, ...]."""

    @abstractmethod
    def prediction(self, means: Statistics, samples: Tensor | None, weights: Tensor) -> Prediction:
        """A Prediction from the averaged statistics."""

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, as plain data."""
        return {}


class Categorical(Likelihood):
    """Class logits in dim 1 ([B, C], or [B, C, H, W] with targets [B, H, W]), labels as targets.

    Example:
        >>> import torch
        >>> lp = Categorical().log_prob(torch.zeros(1, 4), torch.tensor([2]))
        >>> round(lp.item(), 4)
        -1.3863
    """

    def __init__(self, ignore_index: int = -100) -> None:
        super().__init__()
        self.ignore_index = ignore_index

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Log softmax at the label, [B, ...]."""
        _check_labels(output, target, self.ignore_index)
        logits = output.float() if output.dtype in HALF else output
        return -F.cross_entropy(logits, target, ignore_index=self.ignore_index, reduction="none")

    def count(self, log_prob: Tensor, target: Tensor) -> Tensor | int:  # noqa: ARG002
        """Labels that are not ignored."""
        return (target != self.ignore_index).sum()

    def statistics(self, output: Tensor) -> Statistics:
        """Probabilities and their entropy."""
        probs = self.samples(output)
        return {"probs": probs, "aleatoric": entropy(probs, 2)}

    def samples(self, output: Tensor) -> Tensor:
        """Class probabilities, [S, B, C, ...]."""
        return torch.softmax(widened(output), 2)

    def prediction(
        self, means: Statistics, samples: Tensor | None, weights: Tensor
    ) -> Classification:
        """Class probabilities and uncertainty."""
        return Classification(samples, weights, **means)

    def settings(self) -> dict[str, Any]:
        """The ignored label."""
        return {"ignore_index": self.ignore_index}


class Bernoulli(Likelihood):
    """One logit an element, targets 0 or 1 of the same shape (a last dimension of 1 may lack)."""

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Log sigmoid at the label, by element."""
        target = matched(target, output).to(output.dtype)
        return -F.binary_cross_entropy_with_logits(output, target, reduction="none")

    def statistics(self, output: Tensor) -> Statistics:
        """P(y = 1) and its entropy."""
        probs = self.samples(output)
        both = torch.stack([probs, 1 - probs], -1)
        return {"probs": probs, "aleatoric": entropy(both, -1)}

    def samples(self, output: Tensor) -> Tensor:
        """P(y = 1), [S, B, ...]."""
        return torch.sigmoid(widened(output))

    def prediction(
        self, means: Statistics, samples: Tensor | None, weights: Tensor
    ) -> BinaryClassification:
        """Probability of a positive label and uncertainty."""
        return BinaryClassification(samples, weights, **means)


class Gaussian(Likelihood):
    """Targets [B, T] around the outputs with one noise precision, fixed or learnt.

    `log p(y | f) = sum_t 1/2 ln(precision / 2 pi) - precision / 2 (y_t - f_t)^2`; a datum is a row.

    Args:
        precision: 1 / noise variance, in raw target units.
        learn: Make the precision a parameter; hand the likelihood to `lb.param_groups`.
    """

    log_precision: Tensor

    def __init__(self, precision: float = 1.0, learn: bool = False) -> None:
        super().__init__()
        if not (math.isfinite(precision) and precision > 0):
            raise ConfigError(f"precision must be a positive number, found {precision!r}")
        self.precision, self.learn = precision, learn
        value = torch.tensor(math.log(precision), dtype=torch.float64)
        if learn:
            self.log_precision = nn.Parameter(value)
        else:
            self.register_buffer("log_precision", value)

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Log density of every row, summed over its targets, [B]."""
        error = (matched(target, output) - output).square()
        log_precision = self.log_precision.to(output.dtype)
        terms = 0.5 * (log_precision - math.log(2 * math.pi) - log_precision.exp() * error)
        return terms.flatten(1).sum(1) if terms.dim() > 1 else terms

    def statistics(self, output: Tensor) -> Statistics:
        """Mean, its square and the noise variance."""
        mean = widened(output)
        noise = (-self.log_precision).exp().to(mean.dtype).expand(mean.shape)
        return {"mean": mean, "square": mean.square(), "aleatoric": noise}

    def samples(self, output: Tensor) -> Tensor:
        """Mean and noise variance of each sample, [S, B, T, 2]."""
        stats = self.statistics(output)
        return torch.stack([stats["mean"], stats["aleatoric"]], -1)

    def prediction(self, means: Statistics, samples: Tensor | None, weights: Tensor) -> Regression:
        """Predictive mean and variances."""
        mean = means["mean"]
        spread = (means["square"] - mean.square()).clamp_min(0)
        return Regression(samples, weights, mean, means["aleatoric"], spread)

    def settings(self) -> dict[str, Any]:
        """Initial precision, and whether it is learnt."""
        return {"precision": self.precision, "learn": self.learn}


HALF = (torch.float16, torch.bfloat16)


def tensor_of(output: Any) -> Tensor:
    """The tensor in a network's output: itself, or the `logits` of a richer object."""
    if isinstance(output, Tensor):
        return output
    logits = (
        output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    )
    if isinstance(logits, Tensor):
        return logits
    raise ConfigError(
        f"the network returned {type(output).__name__}; expected a tensor, or an object with "
        "`logits`. Wrap the network so that forward returns the tensor of the likelihood"
    )


def widened(output: Tensor) -> Tensor:
    """Outputs in the type in which they are averaged: float64 wherever the device has it."""
    return output.to(torch.float32 if output.device.type == "mps" else torch.float64)


def matched(target: Tensor, output: Tensor) -> Tensor:
    """Targets in the shape of the outputs; [B] and [B, 1] are the same thing."""
    if target.shape == output.shape:
        return target
    if target.numel() == output.numel() and target.shape[0] == output.shape[0]:
        return target.reshape(output.shape)
    raise ConfigError(
        f"targets of shape {tuple(target.shape)} do not fit outputs of shape "
        f"{tuple(output.shape)}: expected the same shape"
    )


def _check_labels(output: Tensor, target: Tensor, ignore_index: int) -> None:
    if target.is_floating_point() or target.dim() != output.dim() - 1:
        raise ConfigError(
            f"Categorical expects whole-number labels of shape "
            f"{(output.shape[0], *output.shape[2:])} for outputs {tuple(output.shape)}; found "
            f"{target.dtype} of shape {tuple(target.shape)}"
        )
    if target.device.type == "cpu" and not torch.compiler.is_compiling():
        wrong = target[(target != ignore_index) & ((target < 0) | (target >= output.shape[1]))]
        if wrong.numel():
            raise ConfigError(
                f"label {int(wrong[0])} is outside the {output.shape[1]} classes of the output: "
                f"expected 0 to {output.shape[1] - 1}"
            )


def likelihood_from_json(data: Mapping[str, Any]) -> Likelihood:
    """Rebuild a likelihood from its name and settings."""
    known: dict[str, type[Likelihood]] = {
        cls.__name__: cls for cls in (Categorical, Bernoulli, Gaussian)
    }
    if data.get("name") not in known:
        raise ConfigError(f"unknown likelihood {data.get('name')!r}; expected {sorted(known)}")
    return known[data["name"]](**data["settings"])
