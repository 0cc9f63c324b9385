"""Metrics of many batches and processes whose state has a fixed size.

Each has ``update`` for a batch, ``merge`` for what another one has seen, ``reduce`` for what all
processes have seen, and ``value``, which is that of the function of like name on all examples at
once, up to rounding. State is on the CPU in float64.
"""

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from torch import distributed as dist

from leanbayes.metrics.calibration import Reliability, bin_sums, class_sums, classwise_error
from leanbayes.metrics.check import as_rows, check_count, refuse
from leanbayes.metrics.crps import crps_gaussian, crps_mixture, crps_samples
from leanbayes.metrics.overlap import confusion, iou_of_pairs
from leanbayes.metrics.proper import accuracy, brier, nll, nll_of_samples
from leanbayes.metrics.regression import interval_coverage, log_predictive_density, rmse

__all__ = ["ECE", "MCE", "Accumulator", "Average", "ClasswiseECE", "MeanIoU"]

SCORES = (accuracy, brier, nll, nll_of_samples)
MEANS = (*SCORES, crps_gaussian, crps_mixture, crps_samples, interval_coverage)
AVERAGED = (*MEANS, log_predictive_density, rmse)


class Gathers(Protocol):
    """What an accumulator asks of a runtime: `lb.train.Runtime` is one."""

    def gather(self, thing: Any) -> list[Any]:
        """What every process holds, by rank, in all of them."""
        ...


class Accumulator(ABC):
    """What all accumulators have in common; see the module."""

    @abstractmethod
    def update(self, *arguments: Any, **named: Any) -> None:
        """Add a batch."""

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Add what another accumulator of the same settings has seen."""

    @abstractmethod
    def value(self) -> Tensor:
        """The metric of all that was seen, a 0-dim float64 tensor."""

    @abstractmethod
    def settings(self) -> tuple[Any, ...]:
        """What must be equal for two states to add up."""

    def reduce(self, processes: "Gathers | dist.ProcessGroup | None" = None) -> Self:
        """A new accumulator with what all processes have seen, the same bits in each of them.

        All processes must call, those without an example too. This one stays as it is, so that
        nothing counts twice.

        Args:
            processes: a runtime, a process group, or None for the default group; without one it is
                a copy.
        """
        found: list[Self] = copy.deepcopy(_gathered(self, processes))
        total, *others = found
        for other in others:
            total.merge(other)
        return total

    def check_alike(self, other: "Accumulator") -> None:
        """Refuse another kind or other settings."""
        if type(self) is not type(other) or self.settings() != other.settings():
            own, its = (f"{type(x).__name__}{x.settings()}" for x in (self, other))
            refuse(f"merge of {its}", f"another {own}", "the same arguments for both")


class Sums(Accumulator):
    """State that is one tensor, and adds up."""

    def __init__(self) -> None:
        self.sums: Tensor | None = None

    def merge(self, other: Self) -> None:
        """Add what another accumulator of the same settings has seen."""
        self.check_alike(other)
        if other.sums is not None:
            self.add(other.sums)

    def add(self, sums: Tensor) -> None:
        """Add the sums of a batch."""
        sums = sums.detach().to("cpu", torch.float64)
        if self.sums is not None and self.sums.shape != sums.shape:
            found, before = (tuple(x.shape) for x in (sums, self.sums))
            write = "an accumulator of its own for each number of classes"
            refuse(f"sums of shape {found}", f"{before} as before", write)
        self.sums = sums if self.sums is None else self.sums + sums

    def found(self) -> Tensor:
        """The sums; refused where nothing was seen."""
        if self.sums is None:
            refuse(f"{type(self).__name__} has seen no example", "one or more", "update(...) first")
        return self.sums


class Average(Sums):
    """A metric that is a mean over examples (of squares, for `rmse`): two numbers.

    Args:
        metric: one of `accuracy`, `nll`, `nll_of_samples`, `brier`, `rmse`,
            `log_predictive_density`, `interval_coverage`, `crps_gaussian`, `crps_mixture`,
            `crps_samples`.
        options: its settings, such as ``top=5``.

    Example:
        >>> top = Average(accuracy, top=1)
        >>> top.update(torch.eye(2), torch.tensor([0, 1]))
        >>> top.update(torch.eye(2)[:1], torch.tensor([1]))
        >>> round(top.value().item(), 4)
        0.6667
    """

    def __init__(self, metric: Callable[..., Tensor], **options: Any) -> None:
        super().__init__()
        if metric not in AVERAGED:
            names = ", ".join(sorted(f.__name__ for f in AVERAGED))
            found = f"{getattr(metric, '__name__', metric)} is no mean over examples known here"
            refuse(found, f"one of {names}", "ECE(), MeanIoU(classes), Detection(auroc) and so on")
        self.metric, self.options = metric, options
        self._power = 2 if metric is rmse else 1

    def settings(self) -> tuple[Any, ...]:
        """Name of the metric, and its options."""
        return self.metric.__name__, self.options

    def update(self, *arguments: Any, **named: Any) -> None:
        """Add a batch: the arguments of the metric."""
        value = self.metric(*arguments, **named, **self.options) ** self._power
        given = inspect.signature(self.metric).bind(*arguments, **named, **self.options).arguments
        target = given["target"] if "target" in given else given["sample_log_probs"][0]
        count = target.numel()
        self.add(torch.stack([value * count, value.new_tensor(count)]))

    def value(self) -> Tensor:
        """The mean over all examples."""
        total, count = self.found().unbind()
        return (total / count) ** (1 / self._power)


class ECE(Sums):
    """`ece` in batches: three numbers a bin.

    Args:
        bins: of equal width, closed on the right.
        min_count: bins with at most so many examples are dropped, counted over all batches.

    Example:
        >>> error = ECE(bins=4)
        >>> error.update(torch.tensor([[0.5, 0.5], [0.75, 0.25]]), torch.tensor([0, 0]))
        >>> error.update(torch.tensor([[0.75, 0.25], [1.0, 0.0]]), torch.tensor([1, 0]))
        >>> error.value().item()
        0.25
    """

    def __init__(self, bins: int = 15, min_count: int = 0) -> None:
        super().__init__()
        check_count("bins", bins, low=1)
        check_count("min_count", min_count, low=0)
        self.bins, self.min_count = bins, min_count

    def settings(self) -> tuple[Any, ...]:
        """Bins, and the least count."""
        return self.bins, self.min_count

    def update(self, probs: Tensor, target: Tensor) -> None:
        """Add a batch of probabilities ``[B, C, ...]`` and classes ``[B, ...]``."""
        self.add(bin_sums(probs, target, self.bins))

    def table(self) -> Reliability:
        """The reliability diagram."""
        return Reliability.of_sums(self.found())

    def value(self) -> Tensor:
        """The expected calibration error."""
        return self.table().ece(self.min_count)


class MCE(ECE):
    """`mce` in batches, with the arguments and the state of `ECE`."""

    def value(self) -> Tensor:
        """The maximum calibration error."""
        return self.table().mce(self.min_count)


class ClasswiseECE(Sums):
    """`classwise_ece` in batches: three numbers a class and bin.

    Args:
        bins: of equal width, closed on the right.
    """

    def __init__(self, bins: int = 15) -> None:
        super().__init__()
        check_count("bins", bins, low=1)
        self.bins = bins

    def settings(self) -> tuple[Any, ...]:
        """Bins."""
        return (self.bins,)

    def update(self, probs: Tensor, target: Tensor) -> None:
        """Add a batch of probabilities ``[B, C, ...]`` and classes ``[B, ...]``."""
        self.add(class_sums(probs, target, self.bins))

    def value(self) -> Tensor:
        """The class-wise calibration error."""
        return classwise_error(self.found())


class MeanIoU(Sums):
    """`mean_iou` in batches: the confusion matrix."""

    def settings(self) -> tuple[Any, ...]:
        """None."""
        return ()

    def update(self, probs: Tensor, target: Tensor) -> None:
        """Add a batch of probabilities ``[B, C, ...]`` and classes ``[B, ...]``."""
        rows, target = as_rows(probs, target)
        self.add(confusion(rows.argmax(dim=1), target, rows.shape[1]))

    def pairs(self) -> Tensor:
        """How many elements of class i were labelled j, ``[C, C]``, int64."""
        return self.found().long()

    def each(self) -> Tensor:
        """`class_iou`, ``[C]``."""
        return iou_of_pairs(self.found())

    def value(self) -> Tensor:
        """The mean over classes that occur."""
        return self.each().nanmean()


def _gathered(thing: Any, processes: Any) -> list[Any]:
    """What every process holds, by rank."""
    if processes is not None and not _is_group(processes):
        held: list[Any] = processes.gather(thing)
        return held
    if not (dist.is_available() and dist.is_initialized()):
        return [thing]
    found: list[Any] = [None] * dist.get_world_size(processes)
    dist.all_gather_object(found, thing, group=processes)
    return found


def _is_group(processes: object) -> bool:
    # A group has a method `gather` too, of another meaning.
    return dist.is_available() and isinstance(processes, dist.ProcessGroup)
