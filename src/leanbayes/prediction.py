"""What `predict` returns: predictive means and decomposed uncertainty, one value an element.

Shapes: S samples, B examples, C classes, T targets. Entropies are in nats.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from leanbayes.errors import ConfigError

COMMON = ("samples", "weights", "conformal")  # to all kinds of predictions


class Coverage(Protocol):
    """What a conformal calibration adds to a prediction (`lb.calibrate`)."""

    def sets(self, probs: Tensor, alpha: float | None, seed: int | None) -> Tensor:
        """Classes in the set of each row, [B, C]."""

    def reach(self, q: float | None) -> Tensor:
        """Standard deviations that an interval goes to each side."""


@dataclass(frozen=True, repr=False)
class Prediction(ABC):
    """The common part: the samples, and how predictions of batches are joined.

    Attributes:
        samples: Per-sample outputs, [S, B, ...], where they were asked for, else None.
        weights: Weight of each sample in every average, [S].
        conformal: How sets and intervals cover, of a model that was calibrated so, else None.
    """

    samples: Tensor | None
    weights: Tensor
    conformal: Coverage | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return int(self.total.shape[0])

    def __repr__(self) -> str:
        name = next(f.name for f in fields(self) if f.name not in COMMON)
        shape = list(getattr(self, name).shape)
        means = {part: getattr(self, part).mean() for part in ("total", "aleatoric", "epistemic")}
        words = ", ".join(f"{part}={float(mean):.4g}" for part, mean in means.items())
        return f"{type(self).__name__}({name} {shape} of {len(self.weights)} samples; mean {words})"

    @property
    @abstractmethod
    def total(self) -> Tensor:
        """Total uncertainty: aleatoric + epistemic."""

    @classmethod
    def cat(cls, parts: Sequence[Self]) -> Self:
        """Join the predictions of consecutive batches, all of them by as many draws."""
        if not parts:
            raise ConfigError("cat joins the predictions of batches: found none")
        alike = {(p.samples is None, len(p.weights)) for p in parts}
        if len(alike) > 1:
            raise ConfigError(
                "cat joins predictions of as many draws, all with their samples or all without: "
                f"found {', '.join(_drawn(p) for p in parts[:4])}. Write the same samples= and "
                "keep_samples= for every batch"
            )
        names = [f.name for f in fields(cls) if f.name not in COMMON]
        joined: dict[str, Any] = {n: torch.cat([getattr(p, n) for p in parts]) for n in names}
        kept = [p.samples for p in parts if p.samples is not None]
        return replace(parts[0], samples=torch.cat(kept, 1) if kept else None, **joined)

    def to(self, device: torch.device | str) -> Self:
        """Move every tensor."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        moved: dict[str, Any] = {
            k: v.to(device) if isinstance(v, Tensor) else v for k, v in values.items()
        }
        return type(self)(**moved)

    def _sets(self, probs: Tensor, alpha: float | None, seed: int | None) -> Tensor:
        if self.conformal is None:
            raise ConfigError(
                "sets need a calibrated model: lb.calibrate(model, validation, method='conformal')"
            )
        return self.conformal.sets(probs, alpha, seed)


@dataclass(frozen=True, repr=False)
class Classification(Prediction):
    """Class probabilities and their uncertainty.

    Attributes:
        probs: Mean of the samples' probabilities, [B, C, ...].
        aleatoric: Mean entropy of the samples, [B, ...].
    """

    probs: Tensor
    aleatoric: Tensor

    @property
    def label(self) -> Tensor:
        """The most probable class, [B, ...]."""
        return self.probs.argmax(1)

    @property
    def confidence(self) -> Tensor:
        """Probability of that class, [B, ...]."""
        return self.probs.amax(1)

    @property
    def total(self) -> Tensor:
        """Entropy of the mean probabilities, [B, ...]."""
        return entropy(self.probs, 1)

    @property
    def epistemic(self) -> Tensor:
        """Mutual information of label and weights: total - aleatoric, at most ln S."""
        return self.total - self.aleatoric

    def log_prob(self, target: Tensor) -> Tensor:
        """Log predictive probability of labels [B, ...]: the log of the mean, by element.

        Every label must be a class; where some mean "no label", keep = y != ignore_index and
        `p.log_prob(torch.where(keep, y, 0))[keep]`.
        """
        check_classes(target, self.probs)
        return self.probs.gather(1, target.long().unsqueeze(1)).squeeze(1).log()

    def sets(self, alpha: float | None = None, *, seed: int | None = None) -> Tensor:
        """Classes that hold the label with a probability of at least 1 - alpha, booleans [B, C].

        Of a model after `lb.calibrate(..., method="conformal")`, whose alpha is taken without one.
        `seed` is that of randomised sets.
        """
        return self._sets(self.probs, alpha, seed)


@dataclass(frozen=True, repr=False)
class BinaryClassification(Prediction):
    """Probability of a positive label and its uncertainty.

    Attributes:
        probs: Mean of the samples' P(y = 1), [B, ...].
        aleatoric: Mean entropy of the samples, [B, ...].
        complement: Mean of the samples' P(y = 0). Where it is below 1e-16 it cannot be told from
            `probs`, which is 1 then; that difference is taken where none is given.
    """

    probs: Tensor
    aleatoric: Tensor
    complement: Tensor = field(default=None, kw_only=True)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.complement is None:
            object.__setattr__(self, "complement", 1 - self.probs)

    @property
    def both(self) -> Tensor:
        """Probabilities of the labels 0 and 1, [B, ..., 2]."""
        return torch.stack([self.complement, self.probs], -1)

    @property
    def label(self) -> Tensor:
        """1 where P(y = 1) exceeds one half."""
        return (self.probs > 0.5).long()

    @property
    def confidence(self) -> Tensor:
        """Probability of that label."""
        return torch.maximum(self.probs, self.complement)

    @property
    def total(self) -> Tensor:
        """Entropy of the mean probability."""
        return entropy(self.both, -1)

    @property
    def epistemic(self) -> Tensor:
        """Mutual information of label and weights: total - aleatoric."""
        return self.total - self.aleatoric

    def log_prob(self, target: Tensor) -> Tensor:
        """Log predictive probability of labels 0 or 1, by element; of several targets each.

        Of a label t between them, as training takes it, `t ln P(y = 1) + (1 - t) ln P(y = 0)`.
        """
        target = matched(target, self.probs).to(self.probs.dtype)
        check_chances(target)
        return torch.xlogy(target, self.probs) + torch.xlogy(1 - target, self.complement)

    def sets(self, alpha: float | None = None, *, seed: int | None = None) -> Tensor:
        """Which of the labels 0 and 1 are in the set of each row, booleans [B, 2].

        See `Classification.sets`; of one label a row.
        """
        both = self.both
        return self._sets(both.flatten(1, -2).squeeze(1) if both.dim() > 2 else both, alpha, seed)


@dataclass(frozen=True, repr=False)
class Regression(Prediction):
    """Predictive mean and variances, in target units.

    `samples` holds the mean and the noise variance of each sample, [S, B, T, 2].

    Attributes:
        mean: Mean of the samples' means, [B, T].
        aleatoric: Mean noise variance, [B, T].
        epistemic: Variance of the samples' means (divided by S), [B, T].
    """

    mean: Tensor
    aleatoric: Tensor
    epistemic: Tensor

    @property
    def total(self) -> Tensor:
        """Total variance: aleatoric + epistemic."""
        return self.aleatoric + self.epistemic

    @property
    def std(self) -> Tensor:
        """Root of the total variance."""
        return self.total.sqrt()

    def interval(self, q: float | None = None) -> tuple[Tensor, Tensor]:
        """Central interval of probability q, 0.95 by default: quantiles of the sample mixture.

        Without `keep_samples=True` the mixture is not known, and this is mean +- z std, the
        interval of a Gaussian with the same two moments. Of a model after `lb.calibrate(...,
        method="conformal")` it is mean +- t std with the t that covers q of all targets, and
        without a q 1 - alpha of them.
        """
        if q is not None and not 0 < q < 1:
            raise ConfigError(f"q must lie between 0 and 1, found {q!r}")
        if self.conformal is not None:
            reach = self.conformal.reach(q).to(self.std) * self.std
            return self.mean - reach, self.mean + reach
        q = 0.95 if q is None else q
        lower, upper = (1 - q) / 2, (1 + q) / 2
        if self.samples is None:
            z = math.sqrt(2) * float(torch.erfinv(torch.tensor(q, dtype=torch.float64)))
            return self.mean - z * self.std, self.mean + z * self.std
        return self._quantile(lower), self._quantile(upper)

    def log_prob(self, target: Tensor) -> Tensor:
        """Log density of the sample mixture at targets [B, T], by element.

        Every target has a mixture of its own, `ln sum_s w_s N(y_bt | m_sbt, v_sbt)`; the mean over
        all elements is the log predictive density. `log_density` is that of whole rows.
        """
        terms = self._log_terms(target)
        return torch.logsumexp(terms + self._spread(self.weights.log()), 0)

    def log_density(self, target: Tensor) -> Tensor:
        """Joint log density of the targets of a row, `ln sum_s w_s prod_t N(y_bt | m_sbt, v_sbt)`.

        Targets are independent given the weights of the network, so a sample is one component for
        all targets of a row: [B, T] gives [B], maps [B, T, H, W] give [B, H, W]. It equals
        `log_prob` where T is 1.
        """
        terms = self._log_terms(target)
        terms = terms.sum(2) if terms.dim() > 2 else terms
        weights = self.weights.log().reshape(-1, *(1,) * (terms.dim() - 1))
        return torch.logsumexp(terms + weights, 0)

    def _log_terms(self, target: Tensor) -> Tensor:
        """Log density of every sample, [S, B, T]."""
        means, noise = self._mixture()
        error = matched(target, self.mean) - means
        return -0.5 * (error.square() / noise + noise.log() + math.log(2 * math.pi))

    def _mixture(self) -> tuple[Tensor, Tensor]:
        if self.samples is None:
            raise ConfigError(
                "the density of the sample mixture needs the samples: "
                "lb.predict(..., keep_samples=True)"
            )
        return self.samples[..., 0], self.samples[..., 1]

    def _spread(self, weights: Tensor) -> Tensor:
        return weights.reshape(-1, *(1,) * self.mean.dim())

    def _quantile(self, level: float, steps: int = 80) -> Tensor:
        """Bisection on the distribution function of the mixture."""
        means, noise = self._mixture()
        std, weights = noise.sqrt(), self._spread(self.weights)
        lower, upper = (means - 12 * std).amin(0), (means + 12 * std).amax(0)
        for _ in range(steps):
            middle = (lower + upper) / 2
            below: Tensor = (weights * torch.special.ndtr((middle - means) / std)).sum(0)
            lower = torch.where(below < level, middle, lower)
            upper = torch.where(below < level, upper, middle)
        return (lower + upper) / 2


def entropy(probs: Tensor, dim: int) -> Tensor:
    """Entropy in nats; 0 log 0 is 0."""
    return -torch.xlogy(probs, probs).sum(dim)


def _drawn(found: Prediction) -> str:
    kept = "without" if found.samples is None else "with"
    return f"{len(found.weights)} draws {kept} samples"


def fits(target: Tensor, like: Tensor) -> bool:
    """True where shapes are the same but for dimensions of 1: [B] and [B, 1] are the same thing.

    As many numbers are not enough: those of a map on its side would be taken for others.
    """
    own, wanted = ([size for size in t.shape[1:] if size != 1] for t in (target, like))
    return target.shape[:1] == like.shape[:1] and own == wanted


def matched(target: Tensor, like: Tensor, what: str = "predictions") -> Tensor:
    """Targets in the shape of what is said of them, or an error."""
    if target.shape == like.shape:
        return target
    if fits(target, like):
        return target.reshape(like.shape)
    raise ConfigError(
        f"targets of shape {tuple(target.shape)} do not fit {what} of shape {tuple(like.shape)}: "
        "expected the same shape"
    )


def is_label(target: Tensor, ignore_index: int) -> Tensor:
    """True where there is a label; in 64 bits, for in bytes -100 is the class 156."""
    return target.long() != ignore_index


def check_chances(target: Tensor) -> None:
    """Refuse labels that are neither yes nor no, nor a probability; a missing one is no 'no'."""
    wrong = target[~((target >= 0) & (target <= 1))]
    if wrong.numel():
        raise ConfigError(
            f"label {float(wrong[0]):g}: expected 0 or 1 (or a probability between them). Of "
            "labels -1 and 1 write y > 0; leave out elements without a label: keep = y.isfinite(), "
            "p.log_prob(torch.where(keep, y, 0))[keep]"
        )


def check_classes(target: Tensor, probs: Tensor) -> None:
    """Refuse labels [B, ...] that are no classes of probabilities [B, C, ...]."""
    classes, shape = probs.shape[1], (probs.shape[0], *probs.shape[2:])
    if target.is_floating_point() or tuple(target.shape) != shape:
        raise ConfigError(
            f"expected whole-number labels of shape {shape}, found {target.dtype} of shape "
            f"{tuple(target.shape)}"
        )
    labels = target.long()  # bytes compare with 256 as with 0
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.numel():
        raise ConfigError(
            f"label {int(wrong[0])} is none of the {classes} classes 0 to {classes - 1}; leave out "
            "elements without a label: keep = y != ignore_index, "
            "p.log_prob(torch.where(keep, y, 0))[keep]"
        )
