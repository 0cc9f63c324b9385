"""The optimiser of a run, its rates as functions of the step, and which groups rest."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import nn

from leanbayes.errors import ConfigError
from leanbayes.groups import param_groups
from leanbayes.schedule import Constant, Schedule, StepWarmup, Tempered
from leanbayes.train.config import FitConfig, optimizer_class

POSTERIOR = frozenset({"posterior", "bank"})
NETWORK = frozenset({"base", "mean"})
LIKELIHOOD = frozenset({"likelihood"})  # learnt noise follows whatever moves


def build_optimizer(
    model: nn.Module, likelihood: nn.Module | None, config: FitConfig
) -> torch.optim.Optimizer:
    """The optimiser of the settings over `lb.param_groups`.

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField())
        >>> optimizer = build_optimizer(model, None, FitConfig(lr=1e-4, posterior_lr=1e-3))
        >>> type(optimizer).__name__, [group["name"] for group in optimizer.param_groups]
        ('SGD', ['mean', 'posterior'])
    """
    groups = param_groups(
        model,
        lr=config.lr,
        posterior_lr=config.posterior_lr,
        weight_decay=config.weight_decay,
        likelihood=likelihood,
    )
    _check_groups({group["name"] for group in groups}, config)
    cls = optimizer_class(config.optimizer)
    try:
        return cls(groups, **_options(cls, config))
    except (ValueError, TypeError, RuntimeError) as error:
        raise ConfigError(
            f"optimizer_options: torch.optim.{config.optimizer} says: {error}"
        ) from None


def _options(cls: type[torch.optim.Optimizer], config: FitConfig) -> dict[str, Any]:
    options: dict[str, Any] = {"lr": config.lr} if "lr" in signature(cls).parameters else {}
    if config.optimizer == "SGD":
        options["momentum"] = config.momentum
        options["nesterov"] = config.nesterov and config.momentum > 0
    return {**options, **config.optimizer_options}


def _check_groups(names: Collection[str], config: FitConfig) -> None:
    if not names:
        raise ConfigError(
            "no parameter of the model asks for a gradient: set requires_grad before lb.fit"
        )
    for part, words in ((POSTERIOR, "posterior"), (NETWORK, "network's own")):
        needed = config.train == "alternate" or (config.train == "posterior" and part is POSTERIOR)
        if needed and not part & set(names):
            raise ConfigError(
                f"train={config.train!r} finds no {words} parameters that ask for a gradient, only "
                f"{', '.join(sorted(names))}: write train='all'"
            )


class Rates:
    """Learning rates of all groups as a pure function of the step: there is no state to save.

    `rate(step) = rate * min(1, (step + 1) / warmup) * shape(step / total_steps)`, where cosine is
    `floor + (1 - floor) (1 + cos(pi t)) / 2`, linear `1 - (1 - floor) t`, with t from 0 to 1 inside
    the span, and step `decay^(milestones passed)`.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, config: FitConfig, total_steps: int
    ) -> None:
        self.optimizer, self.config, self.total_steps = optimizer, config, max(1, total_steps)
        # From the settings, not from the groups: those of a resumed optimiser are on their way.
        fast = config.lr if config.posterior_lr is None else config.posterior_lr
        self._network = (config.lr, config.schedule)
        self._posterior = (fast, config.posterior_schedule or config.schedule)

    def set(self, step: int) -> dict[str, float]:
        """Set the rate of every group for a step counted from 0; gives them by group name."""
        rates = {}
        for group in self.optimizer.param_groups:
            rates[group["name"]] = group["lr"] = self.at(group["name"], step)
        return rates

    def at(self, name: str, step: int) -> float:
        """The rate of a group at a step."""
        rate, shape = self._posterior if name in POSTERIOR else self._network
        warmup = self.config.warmup
        rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
        return rate * rise * _height(shape, step / self.total_steps, self.config)


def _height(shape: str, progress: float, config: FitConfig) -> float:
    """The part of the rate that a schedule leaves after a fraction of the run."""
    if shape == "constant":
        return 1.0
    if shape == "step":
        return float(config.decay ** bisect_right(config.milestones, progress))
    start, end = config.span
    done = min(1.0, max(0.0, (progress - start) / (end - start)))
    left = (1 + math.cos(math.pi * done)) / 2 if shape == "cosine" else 1 - done
    return config.floor + (1 - config.floor) * left


def kl_weight_at(config: FitConfig, total_steps: int) -> Callable[[int], float]:
    """The weight of the KL as a function of the step.

    Example:
        >>> weight = kl_weight_at(FitConfig(kl_weight=0.5, kl_warmup=0.2), total_steps=10)
        >>> weight(0), weight(1), weight(9)
        (0.25, 0.5, 0.5)
    """
    if config.kl_schedule is not None:
        return Tempered(config.kl_schedule, config.kl_weight)
    shape: Schedule = Constant(config.kl_weight)
    if config.kl_warmup:
        shape = StepWarmup(max(1, round(config.kl_warmup * total_steps)), config.kl_weight)
    return shape


def trainable(config: FitConfig, step: int, steps_per_epoch: int) -> frozenset[str]:
    """Names of the groups that move in a step: all, or by the turn that an epoch belongs to.

    `alternate` begins with the posterior and changes every `alternate_every` epochs.

    Example:
        >>> sorted(trainable(FitConfig(train="alternate"), step=7, steps_per_epoch=5))
        ['base', 'likelihood', 'mean']
    """
    if config.train == "all":
        return NETWORK | POSTERIOR | LIKELIHOOD
    turn = step // (steps_per_epoch * config.alternate_every) % 2
    network = config.train == "alternate" and turn == 1
    return (NETWORK if network else POSTERIOR) | LIKELIHOOD


def clear(optimizer: torch.optim.Optimizer) -> None:
    """Forget all gradients: `zero_grad` without its bookkeeping, unless a class has its own."""
    if type(optimizer).zero_grad is not torch.optim.Optimizer.zero_grad:
        optimizer.zero_grad()
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def rest(optimizer: torch.optim.Optimizer, moving: Collection[str]) -> None:
    """Let the next steps move the groups of these names alone; others keep values and moments.

    `requires_grad` stays as it is, since DDP decides once which gradients it waits for. A gradient
    of 0 would not do: momentum and decay would still move the parameters. Optimisers pass over
    parameters without a gradient, so it is taken away; once more inside `step`, after all hooks
    that came before, since `lb.attach_kl` gives every parameter of a posterior a gradient there.
    """
    name = "_leanbayes_rest"  # optimisers pickle without it
    previous = getattr(optimizer, name, None)
    if previous is not None:
        previous.remove()
        setattr(optimizer, name, None)
    still = [p for g in optimizer.param_groups if g["name"] not in moving for p in g["params"]]
    if still:
        _forget(still)
        setattr(optimizer, name, optimizer.register_step_pre_hook(partial(_forget, still)))


def _forget(parameters: Collection[nn.Parameter], *_call: Any) -> None:
    for parameter in parameters:
        parameter.grad = None
