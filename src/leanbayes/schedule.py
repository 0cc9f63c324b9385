"""KL schedules: functions from the number of steps taken to the weight of the KL.

`handle.kl_weight = lb.schedule.linear_warmup(steps=1000)` for `lb.attach_kl`, or
`lb.objective(..., kl_weight=schedule(step))`. The loss is `nll + weight * KL / num_data` always.
Plain frozen data: they pickle, compare and go to JSON and back.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from leanbayes.errors import ConfigError

Reading = Literal["text", "printed"]


@dataclass(frozen=True)
class Schedule(ABC):
    """A weight of the KL for every step, counted from 0."""

    def __call__(self, step: int) -> float:
        """The weight at a step."""
        if isinstance(step, bool) or not step >= 0:
            raise ConfigError(f"a schedule counts steps from 0 upwards, found step {step!r}")
        return self.weight_at(step)

    @abstractmethod
    def weight_at(self, step: int) -> float:
        """The weight at a step of at least 0."""

    def to_json(self) -> dict[str, Any]:
        """Plain data: the class and every field."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {k: v.to_json() if isinstance(v, Schedule) else v for k, v in values.items()}
        return {"name": type(self).__name__, "fields": plain}


@dataclass(frozen=True)
class Constant(Schedule):
    """The same weight at every step."""

    weight: float = 1.0

    def __post_init__(self) -> None:
        _check_weight("weight", self.weight)

    def weight_at(self, step: int) -> float:  # noqa: ARG002
        """The weight."""
        return self.weight


@dataclass(frozen=True)
class StepWarmup(Schedule):
    """`weight * min(1, (step + 1) / steps)`."""

    steps: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        _check_count("steps", self.steps)
        _check_weight("weight", self.weight)

    def weight_at(self, step: int) -> float:
        """A straight line that is never 0 and reaches the weight at step `steps - 1`."""
        return self.weight * min(1.0, (step + 1) / self.steps)


@dataclass(frozen=True)
class EpochWarmup(Schedule):
    """`weight * min(1, epoch / epochs)` with `epoch = step // steps_per_epoch`."""

    epochs: int
    steps_per_epoch: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        _check_count("epochs", self.epochs)
        _check_count("steps_per_epoch", self.steps_per_epoch)
        _check_weight("weight", self.weight)

    def weight_at(self, step: int) -> float:
        """A staircase: 0 in the first epoch, the weight from epoch `epochs` on."""
        return self.weight * min(1.0, step // self.steps_per_epoch / self.epochs)


@dataclass(frozen=True)
class Annealed(Schedule):
    """From `start` to `end` in a straight line over `length` counts of `stride` steps."""

    start: float
    end: float
    length: int
    stride: int = 1
    reading: Reading = "text"

    def __post_init__(self) -> None:
        _check_weight("start", self.start)
        _check_weight("end", self.end)
        _check_count("length", self.length)
        _check_count("stride", self.stride)
        if self.reading not in get_args(Reading):
            raise ConfigError(f"reading is 'text' or 'printed', found {self.reading!r}")

    def weight_at(self, step: int) -> float:
        """`start + (end - start) i / E`; as printed, the two ends change places."""
        done = min(1.0, step // self.stride / self.length)
        first, last = self.start, self.end
        if self.reading == "printed":
            first, last = last, first
        return first + (last - first) * done


@dataclass(frozen=True)
class Tempered(Schedule):
    """`temperature * schedule(step)`."""

    schedule: Schedule
    temperature: float

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, Schedule):
            raise ConfigError(
                f"tempered takes a number or a schedule of lb.schedule, found {self.schedule!r}; "
                "write lb.schedule.tempered(lb.schedule.linear_warmup(steps=1000), 0.1)"
            )
        _check_weight("temperature", self.temperature)

    def weight_at(self, step: int) -> float:
        """The weight of the schedule times the temperature."""
        return self.temperature * self.schedule(step)


def constant(weight: float = 1.0) -> Constant:
    """The same weight at every step; 1 is the ELBO (BayesAdapter anneals nothing).

    Example:
        >>> constant(0.5)(1000)
        0.5
    """
    return Constant(weight)


def linear_warmup(
    *,
    steps: int | None = None,
    epochs: int | None = None,
    steps_per_epoch: int | None = None,
    weight: float = 1.0,
) -> StepWarmup | EpochWarmup:
    """From (almost) 0 to `weight`, by step or by epoch.

    By step, `weight * min(1, (step + 1) / steps)`: Rank-1 BNNs (Dusenberry et al. 2020) with steps
    = steps an epoch times 200 of 250 epochs on CIFAR, 90 of 135 on ImageNet. By epoch, `weight *
    min(1, epoch / epochs)`, epochs counted from 0: iBNN (Trinh et al. 2020) with 200 of 300 epochs;
    the KL is off in the whole first epoch.

    Args:
        steps: Steps to the full weight.
        epochs: Epochs to the full weight; needs `steps_per_epoch`.
        steps_per_epoch: `len(loader)`; 1 where the schedule is called with the epoch.
        weight: The weight at the end.

    Example:
        >>> linear_warmup(steps=4)(0), linear_warmup(epochs=200, steps_per_epoch=391)(391 * 100)
        (0.25, 0.5)
    """
    if _by_step(steps, epochs, steps_per_epoch):
        return StepWarmup(steps, weight)  # type: ignore[arg-type]
    return EpochWarmup(epochs, steps_per_epoch, weight)  # type: ignore[arg-type]


def annealed(
    start: float = 0.2,
    end: float = 0.01,
    *,
    steps: int | None = None,
    epochs: int | None = None,
    steps_per_epoch: int | None = None,
    reading: Reading = "text",
) -> Annealed:
    """PBN's beta, `start + (end - start) i / E`: much KL first, little at the end.

    The paper's text says 0.2 -> 0.01, its formula `beta_tgt - (beta_tgt - beta_init) i / E` runs
    from 0.01 to 0.2: `reading="printed"`. Here beta is a weight of KL / num_data; the paper names
    no division, and a summed KL without one would swamp the loss.

    Args:
        start: The weight that the text starts with.
        end: The weight that the text ends with, reached at i = E.
        steps: E, where i counts steps.
        epochs: E, where i counts epochs from 0; needs `steps_per_epoch`.
        steps_per_epoch: `len(loader)`; 1 where the schedule is called with the epoch.
        reading: `text`, or `printed`.

    Example:
        >>> annealed(steps=100)(0), annealed(steps=100, reading="printed")(0)
        (0.2, 0.01)
    """
    if _by_step(steps, epochs, steps_per_epoch):
        return Annealed(start, end, steps, 1, reading)  # type: ignore[arg-type]
    return Annealed(start, end, epochs, steps_per_epoch, reading)  # type: ignore[arg-type]


def tempered(schedule: Schedule | float, temperature: float) -> Tempered:
    """The posterior temperature T multiplies the KL: `loss = nll + T * weight * KL / num_data`.

    At weight 1 the optimum is `p(y | w)^(1/T) p(w)`, normalised: the likelihood is tempered, the
    prior is not; T < 1 is colder, that is more sure. The cold posterior of Wenzel et al. (2020),
    `(p(y | w) p(w))^(1/T)`, tempers both: with a Gaussian prior also write prior_std * sqrt(T).

    Example:
        >>> tempered(linear_warmup(steps=2), 0.5)(0)
        0.25
    """
    number = isinstance(schedule, int | float) and not isinstance(schedule, bool)
    return Tempered(Constant(schedule) if number else schedule, temperature)  # type: ignore[arg-type]


def from_json(data: Mapping[str, Any]) -> Schedule:
    """The inverse of `to_json`.

    Example:
        >>> from_json(constant(0.5).to_json())
        Constant(weight=0.5)
    """
    kinds: tuple[type[Any], ...] = (Constant, StepWarmup, EpochWarmup, Annealed, Tempered)
    known = {cls.__name__: cls for cls in kinds}
    if data.get("name") not in known:
        raise ConfigError(f"unknown schedule {data.get('name')!r}; expected {sorted(known)}")
    values = {k: from_json(v) if isinstance(v, Mapping) else v for k, v in data["fields"].items()}
    schedule: Schedule = known[data["name"]](**values)
    return schedule


def _by_step(steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> bool:
    """True for steps, False for epochs, an error for both, neither or half of the latter."""
    if (steps is None) == (epochs is None):
        raise ConfigError(
            "a schedule has a length in steps or in epochs: write steps=10_000, or epochs=200 with "
            f"steps_per_epoch=len(loader); found steps={steps!r}, epochs={epochs!r}"
        )
    if (epochs is None) != (steps_per_epoch is None):
        raise ConfigError(
            "epochs and steps_per_epoch go together: epochs=200, steps_per_epoch=len(loader), or "
            "steps_per_epoch=1 where the schedule is called with the epoch; found "
            f"epochs={epochs!r}, steps_per_epoch={steps_per_epoch!r}"
        )
    return epochs is None


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, found {value!r}")


def _check_weight(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and value >= 0):
        raise ConfigError(f"{name} must be a finite number of at least 0, found {value!r}")
