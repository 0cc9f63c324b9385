"""Likelihoods of labels: one of several classes, or yes and no."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from leanbayes.errors import ConfigError
from leanbayes.likelihood.base import Likelihood, Statistics, single, widened
from leanbayes.prediction import BinaryClassification, Classification, entropy, is_label, matched


class Categorical(Likelihood):
    """Class logits in dim 1 ([B, C], or [B, C, H, W] with targets [B, H, W]), labels as targets.

    With class weights the loss is the weighted mean `sum_i w_(y_i) nll_i / sum_i w_(y_i)`, as that
    of `torch.nn.functional.cross_entropy`. They steer training alone: predictions are those of
    the network, and the number of data is that of the labels.

    Args:
        ignore_index: The label that means "no label".
        class_weights: A positive weight a class, for classes that are rare.

    Example:
        >>> import torch
        >>> lp = Categorical().log_prob(torch.zeros(1, 4), torch.tensor([2]))
        >>> round(lp.item(), 4)
        -1.3863
    """

    class_weights: Tensor | None

    def __init__(
        self, ignore_index: int = -100, class_weights: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        self.ignore_index = ignore_index
        weights = None if class_weights is None else _checked_weights(class_weights)
        self._given = None if weights is None else weights.tolist()
        # Not in the state: `settings` rebuilds them, and checkpoints without weights stay valid.
        self.register_buffer("class_weights", weights, persistent=False)

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Log softmax at the label, times the weight of the label, [B, ...]."""
        _check_labels(output, target, self.ignore_index)
        logits, weights = single(output), self.class_weights
        if weights is not None:
            _check_classes(weights, output)
            weights = weights.to(logits)
        # torch takes int64 and bytes alone, and int32 is what other libraries write.
        return -F.cross_entropy(
            logits, target.long(), weights, ignore_index=self.ignore_index, reduction="none"
        )

    def count(self, log_prob: Tensor, target: Tensor) -> Tensor | int:
        """Labels that are not ignored; with class weights the sum of theirs."""
        labelled = is_label(target, self.ignore_index)
        # Without values of log_prob it is the data that are counted, each once, for num_data.
        if self.class_weights is None or log_prob.is_meta:
            return labelled.sum()
        weights = self.class_weights.to(log_prob)
        return (weights[torch.where(labelled, target, 0).long()] * labelled).sum()

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
        return Classification(samples, weights, means["probs"], means["aleatoric"])

    def settings(self) -> dict[str, Any]:
        """The ignored label, and the class weights if there are any."""
        found: dict[str, Any] = {"ignore_index": self.ignore_index}
        return found if self._given is None else {**found, "class_weights": self._given}


class Bernoulli(Likelihood):
    """One logit an element, targets 0 or 1 of the same shape (a last dimension of 1 may lack).

    Several targets a row, [B, T], are so many independent labels: each is a datum of its own.
    """

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Log sigmoid at the label, by element."""
        logits = single(output)
        target = matched(target, logits, "outputs").to(logits.dtype)
        _check_chances(target)
        return -F.binary_cross_entropy_with_logits(logits, target, reduction="none")

    def statistics(self, output: Tensor) -> Statistics:
        """P(y = 1), P(y = 0), which 1 - P(y = 1) rounds to 0 below 1e-16, and their entropy."""
        probs, complement = self.samples(output), self.samples(-output)
        both = torch.stack([probs, complement], -1)
        return {"probs": probs, "complement": complement, "aleatoric": entropy(both, -1)}

    def samples(self, output: Tensor) -> Tensor:
        """P(y = 1), [S, B, ...]."""
        return torch.sigmoid(widened(output))

    def prediction(
        self, means: Statistics, samples: Tensor | None, weights: Tensor
    ) -> BinaryClassification:
        """Probability of a positive label and uncertainty."""
        return BinaryClassification(
            samples, weights, means["probs"], means["aleatoric"], complement=means["complement"]
        )


def _checked_weights(values: Sequence[float]) -> Tensor:
    try:
        weights = torch.as_tensor(values, dtype=torch.float64).detach().clone()
    except (TypeError, ValueError, RuntimeError):
        weights = torch.empty(0)
    if (
        weights.dim() != 1
        or not len(weights)
        or not bool((weights.isfinite() & (weights > 0)).all())
    ):
        raise ConfigError(
            f"class_weights must be a positive number a class, found {values!r}; a class that "
            "shall not count at all is the ignore_index"
        )
    return weights


def _check_classes(weights: Tensor, output: Tensor) -> None:
    if len(weights) != output.shape[1]:
        raise ConfigError(
            f"class_weights has {len(weights)} numbers for outputs of {output.shape[1]} classes: "
            "expected one a class"
        )


def _check_chances(target: Tensor) -> None:
    """Refuse labels such as -1 and 1, whose loss has no lower end; the check is that of a CPU."""
    if target.device.type == "cpu" and not torch.compiler.is_compiling():
        wrong = target[(target < 0) | (target > 1)]
        if wrong.numel():
            raise ConfigError(
                f"label {float(wrong[0]):g} of a Bernoulli: expected 0 or 1 (or a probability "
                "between them). Of labels -1 and 1 write (targets > 0).float()"
            )


def _check_labels(output: Tensor, target: Tensor, ignore_index: int) -> None:
    if target.is_floating_point() or target.dim() != output.dim() - 1:
        raise ConfigError(
            f"Categorical expects whole-number labels of shape "
            f"{(output.shape[0], *output.shape[2:])} for outputs {tuple(output.shape)}; found "
            f"{target.dtype} of shape {tuple(target.shape)}"
        )
    if target.device.type == "cpu" and not torch.compiler.is_compiling():
        labels = target[is_label(target, ignore_index)].long()
        wrong = labels[(labels < 0) | (labels >= output.shape[1])]
        if wrong.numel():
            raise ConfigError(
                f"label {int(wrong[0])} is outside the {output.shape[1]} classes of the output: "
                f"expected 0 to {output.shape[1] - 1}"
            )
