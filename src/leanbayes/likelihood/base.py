"""What every likelihood offers, and how outputs and targets meet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from leanbayes.errors import ConfigError
from leanbayes.prediction import Prediction

Statistics = dict[str, Tensor]
HALF = (torch.float16, torch.bfloat16)


class Likelihood(nn.Module, ABC):
    """p(y | output). A datum is a row, or an element where targets are dense."""

    @abstractmethod
    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Log probability of every datum; elements without a label give 0."""

    def count(self, log_prob: Tensor, target: Tensor) -> Tensor | int:  # noqa: ARG002
        """Number of data with a label, which divides the sum of their log probabilities."""
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


def needed(likelihood: Any, who: str) -> Likelihood:
    """The likelihood, or an error that says what stands for a loss of torch."""
    if isinstance(likelihood, Likelihood):
        return likelihood
    found = f"the class {likelihood.__name__}" if isinstance(likelihood, type) else repr(likelihood)
    raise ConfigError(
        f"{who} needs a likelihood such as lb.Categorical(), found {found}. lb.Categorical() "
        "stands for CrossEntropyLoss, lb.Bernoulli() for BCEWithLogitsLoss, lb.Gaussian() for "
        "MSELoss"
    )


def mean_nll(likelihood: Likelihood, log_prob: Tensor, target: Tensor) -> Tensor:
    """Mean negative log-likelihood a datum; 0 where none has a label, for 0 / 0 would end a run."""
    count = likelihood.count(log_prob, target)
    if isinstance(count, Tensor):
        count = torch.where(count > 0, count, 1)
    return -log_prob.sum() / count


def tensor_of(output: Any) -> Tensor:
    """The tensor in a network's output: itself, or the main one of a richer object.

    That is `logits` of one of transformers, `out` of a segmentation network of torchvision.
    """
    if isinstance(output, Tensor):
        return output
    named = output if isinstance(output, Mapping) else {"logits": getattr(output, "logits", None)}
    found = next((named[key] for key in ("logits", "out") if key in named), None)
    if isinstance(found, Tensor):
        return found
    raise ConfigError(
        f"the network returned {type(output).__name__}; expected a tensor, or an object with "
        "`logits` or an entry `out`. Wrap the network so that forward returns the tensor of the "
        "likelihood"
    )


def widened(output: Tensor) -> Tensor:
    """Outputs in the type in which they are averaged: float64 wherever the device has it."""
    return output.to(torch.float32 if output.device.type == "mps" else torch.float64)


def single(output: Tensor) -> Tensor:
    """Outputs in float32 at least: logarithms and sums of half precision lose digits."""
    return output.float() if output.dtype in HALF else output
