"""Likelihoods of numbers: Gaussian noise of one size, or of a size that the network predicts.

Networks learn best when their outputs are of order one, and users think in the units of their
targets. So outputs `f` are in standard units, `target_mean + target_std f` in those of the targets;
everything else (targets, precision, predictions) is in raw units. By the change of variables

    ln p(y) = ln N((y - target_mean) / target_std | f, v) - ln target_std

the objective differs from that of standardised targets by a constant alone.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from leanbayes.errors import ConfigError
from leanbayes.likelihood.base import Likelihood, Statistics, single, widened
from leanbayes.prediction import Regression, fits, matched

Numbers = float | Sequence[float]
LOG_TWO_PI = math.log(2 * math.pi)
LARGEST_BOUND = 40.0  # exp(40) times a squared error has room in float32


class RealTargets(Likelihood):
    """What Gaussian likelihoods share: the scale of the targets, and the split of the variance.

    Targets stand in dim 1 as classes do, [B, T] or [B, T, H, W]. A datum is a row, or a position of
    a map (a pixel, a token); its log density is the sum over its T targets.

    Args:
        target_mean: Mean of the training targets, a number or one a target.
        target_std: Their standard deviation, positive, a number or one a target.
    """

    target_mean: Tensor
    target_std: Tensor

    def __init__(self, target_mean: Numbers, target_std: Numbers) -> None:
        super().__init__()
        # Not in the state: `settings` rebuilds them, and checkpoints without a scale stay valid.
        mean, std = numbers("target_mean", target_mean), positive("target_std", target_std)
        self._given = {"target_mean": mean.tolist(), "target_std": std.tolist()}
        self.register_buffer("target_mean", mean, persistent=False)
        self.register_buffer("target_std", std, persistent=False)

    @abstractmethod
    def moments(self, output: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """Mean and log variance in standard units; targets stand in dimension `dim`."""

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Log density of every datum in raw units, summed over its targets: [B] or [B, H, W]."""
        mean, log_variance = self.moments(single(output), 1)
        target = matched(_with_channel(target, mean), mean, "outputs")
        # In the type of the targets: far from 0 float32 would round their mean, not the targets.
        shift, scale = self._scale(target.to(torch.promote_types(target.dtype, mean.dtype)), 1)
        error = (target - shift) / scale - mean
        inverse = (-log_variance).exp()
        terms = -0.5 * (inverse * error.square() + log_variance + LOG_TWO_PI) - scale.log()
        return terms.sum(1) if terms.dim() > 1 else terms

    def count(self, log_prob: Tensor, target: Tensor) -> Tensor | int:  # noqa: ARG002
        """Number of rows; of maps, of their positions."""
        return int(math.prod((*target.shape[:1], *target.shape[2:])))

    def statistics(self, output: Tensor) -> Statistics:
        """Mean, its square and the noise variance, in standard units: raw ones would cancel."""
        mean, log_variance = self.moments(widened(output), 2)
        noise = log_variance.exp().expand(mean.shape)
        return {"mean": mean, "square": mean.square(), "aleatoric": noise}

    def samples(self, output: Tensor) -> Tensor:
        """Mean and noise variance of each sample in raw units, [S, B, T, 2]."""
        stats = self.statistics(output)
        shift, scale = self._scale(stats["mean"], 2)
        return torch.stack([shift + scale * stats["mean"], scale.square() * stats["aleatoric"]], -1)

    def prediction(self, means: Statistics, samples: Tensor | None, weights: Tensor) -> Regression:
        """Predictive mean and variances in raw units."""
        mean = means["mean"]
        shift, scale = self._scale(mean, 1)
        spread = (means["square"] - mean.square()).clamp_min(0)
        variance = scale.square()
        return Regression(
            samples, weights, shift + scale * mean, variance * means["aleatoric"], variance * spread
        )

    def settings(self) -> dict[str, Any]:
        """The scale of the targets."""
        return dict(self._given)  # not from the buffers, which a cast may have rounded

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Numbers of the user move along, and keep their digits where a network is cast."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            if old is not None and not old.is_meta:
                self._buffers[name] = old.to(getattr(self, name).device)
        return self

    def _scale(self, like: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        return (
            by_target("target_mean", self.target_mean, like, dim),
            by_target("target_std", self.target_std, like, dim),
        )


def _with_channel(target: Tensor, mean: Tensor) -> Tensor:
    """Maps of targets with the dimension in which targets stand: without it, rows of a map do."""
    if math.prod(target.shape[2:]) != math.prod(mean.shape[2:]) and fits(target, mean):
        raise ConfigError(
            f"maps of targets of shape {tuple(target.shape)} lack the dimension of the outputs "
            f"{tuple(mean.shape)} in which targets stand: write targets[:, None]"
        )
    return target


class Gaussian(RealTargets):
    """Targets [B, T] around the outputs with one noise precision, fixed or learnt.

    `log p(y | f) = sum_t 1/2 ln(precision / 2 pi) - precision / 2 (y_t - f_t)^2`; a datum is a row,
    of maps [B, T, H, W] a position.

    Args:
        precision: 1 / noise variance, in raw target units; a number or one a target.
        learn: Make the precision a parameter; hand a likelihood that is not kept with the model to
            `lb.param_groups`. It is one a target where `precision` or `target_std` is.
        target_mean: Raw targets are `target_mean + target_std * output`; a number or one a target.
        target_std: See target_mean.

    Attributes:
        log_precision: `ln(precision * target_std^2)`, that is in the units of the outputs.

    Example:
        >>> import torch
        >>> scaled = Gaussian(precision=0.25, target_mean=10.0, target_std=2.0)
        >>> round(scaled.log_prob(torch.zeros(1, 1), torch.tensor([[12.0]])).item(), 4)
        -2.1121
    """

    log_precision: Tensor

    def __init__(
        self,
        precision: Numbers = 1.0,
        learn: bool = False,
        target_mean: Numbers = 0.0,
        target_std: Numbers = 1.0,
    ) -> None:
        super().__init__(target_mean, target_std)
        raw = positive("precision", precision)
        self.precision: float | list[float] = raw.tolist()
        self.learn = learn
        value = raw.log() + 2 * _agreeing(self.target_std, raw).log()
        if learn:
            self.log_precision = nn.Parameter(value)
        else:
            self.register_buffer("log_precision", value)

    def moments(self, output: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """The outputs, and the one variance."""
        return output, -by_target("precision", self.log_precision, output, dim)

    def settings(self) -> dict[str, Any]:
        """Initial precision, whether it is learnt, and the scale of the targets."""
        return {"precision": self.precision, "learn": self.learn, **super().settings()}


class HeteroscedasticGaussian(RealTargets):
    """Targets [B, T] with a noise variance of their own, which the network predicts too.

    Outputs [B, 2T] hold T means and then T numbers s, with

        ln variance = bound tanh(s / bound)        (standard units)

    which is s itself near 0 and stays within +- bound, so that neither the variance nor its
    reciprocal can overflow; gradients shrink on the way there but do not vanish at once. The
    aleatoric variance is the mean over samples of the predicted variances (Kendall and Gal 2017,
    "What uncertainties do we need in Bayesian deep learning for computer vision?").

    Cost: twice the outputs in the last layer.

    Args:
        target_mean: Raw targets are `target_mean + target_std * output`; a number or one a target.
        target_std: See target_mean.
        bound: Largest |ln variance| in units of target_std^2; 10 allows noise between 0.7 % and
            148 times the standard deviation of the targets.

    Example:
        >>> import torch
        >>> head = torch.tensor([[0.0, 0.0]])  # mean 0, variance exp(0) = 1
        >>> round(HeteroscedasticGaussian().log_prob(head, torch.zeros(1, 1)).item(), 4)
        -0.9189
    """

    def __init__(
        self, target_mean: Numbers = 0.0, target_std: Numbers = 1.0, bound: float = 10.0
    ) -> None:
        super().__init__(target_mean, target_std)
        if not 0 < bound <= LARGEST_BOUND:
            raise ConfigError(
                f"bound must lie above 0 and be at most {LARGEST_BOUND:g}, found {bound!r}: it "
                "limits the logarithm of the variance"
            )
        self.bound = bound

    def moments(self, output: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """The first half of the outputs, and the bounded second half."""
        if output.dim() <= dim or output.shape[dim] % 2:
            shape = tuple(output.shape[dim - 1 :])
            raise ConfigError(
                "HeteroscedasticGaussian expects outputs [B, 2T], a mean and a log variance a "
                f"target; found {shape}. Write a last layer with twice as many outputs as targets"
            )
        mean, log_variance = output.chunk(2, dim)
        return mean, self.bound * torch.tanh(log_variance / self.bound)

    def settings(self) -> dict[str, Any]:
        """The scale of the targets, and the bound."""
        return {**super().settings(), "bound": self.bound}


def numbers(name: str, values: Numbers) -> Tensor:
    """One finite number as a scalar, several as a vector, in float64."""
    try:
        found = torch.as_tensor(values, dtype=torch.float64).detach().clone()
    except (TypeError, ValueError, RuntimeError):
        found = torch.full((), math.nan)
    if found.dim() > 1 or not found.numel() or not bool(found.isfinite().all()):
        raise ConfigError(
            f"{name} must be a finite number, or a list of one a target; found {values!r}"
        )
    return found


def positive(name: str, values: Numbers) -> Tensor:
    """As `numbers`, all above 0."""
    words = f"{name} must be a positive number, or a list of one a target; found {values!r}"
    try:
        found = numbers(name, values)
    except ConfigError:
        raise ConfigError(words) from None
    if not bool((found > 0).all()):
        raise ConfigError(words)
    return found


def by_target(name: str, values: Tensor, like: Tensor, dim: int) -> Tensor:
    """Numbers of targets, which stand in dimension `dim`, in a shape that broadcasts to `like`."""
    values = values.to(like)
    if values.dim() == 0:
        return values
    targets = like.shape[dim] if like.dim() > dim else 1
    if len(values) != targets:
        raise ConfigError(
            f"{name} has {len(values)} numbers for outputs of {targets} targets: expected one a "
            "target (dim 1), or a single number"
        )
    return values.reshape(-1, *(1,) * (like.dim() - dim - 1))


def _agreeing(std: Tensor, precision: Tensor) -> Tensor:
    if std.dim() and precision.dim() and len(std) != len(precision):
        raise ConfigError(
            f"precision has {len(precision)} numbers and target_std {len(std)}: expected one a "
            "target in both"
        )
    return std
