"""What a run reads: training batches, validation data, and OOD inputs beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from leanbayes.errors import ConfigError, DataError
from leanbayes.likelihood import Likelihood
from leanbayes.train.advice import warn_num_data
from leanbayes.train.config import FitConfig
from leanbayes.train.data import Batches, num_elements
from leanbayes.train.evaluation import on_device
from leanbayes.train.resident import resident
from leanbayes.train.runtime import Runtime
from leanbayes.train.sources import is_own_part

Augment = Callable[[Any], Any]


def every_batch(
    data: Any, config: FitConfig, *, shuffle: bool = True, smallest: int = 1
) -> Batches:
    """All of the data on every process, in the order of the run, or in their own."""
    return Batches(
        data,
        batch_size=config.batch_size,
        seed=config.seed,
        workers=config.workers,
        smallest=smallest,
        shuffle=shuffle,
    )


class Loader:
    """Batches on a device as an iterable: every iteration is the next epoch's order.

    Args:
        batches: To read.
        device: Where they go.
        augment: Changes the inputs there.
    """

    def __init__(
        self, batches: Batches, device: torch.device, augment: Augment | None = None
    ) -> None:
        self.batches, self.device, self.augment, self.epoch = batches, device, augment, 0

    def __len__(self) -> int:
        return self.batches.steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        self.epoch += 1
        found = (on_device(batch, self.device) for batch in self.batches.epoch(self.epoch - 1))
        augment = self.augment
        return found if augment is None else ((augment(x), y) for x, y in found)


class Feed:
    """The data of a run, cut for this process.

    Attributes:
        train: Training batches.
        validation: Validation data, whole on every process; None without.
        ood: Batches of inputs for the regulariser; None without.
        steps_per_epoch: Of the training batches.
    """

    def __init__(
        self,
        train: Any,
        validation: Any,
        ood: Any,
        config: FitConfig,
        runtime: Runtime,
        *,
        smallest: int = 1,
    ) -> None:
        self._config, self._runtime, self._smallest = config, runtime, max(1, smallest)
        if isinstance(ood, Tensor):  # of whose targets nobody asks
            ood = (ood, torch.zeros(len(ood)))
        if config.resident:
            train, validation, ood = (resident(d, runtime.device) for d in (train, validation, ood))
        self.train = self._own_part(train, config.seed, config.batch_size, self._smallest)
        if runtime.world > 1:
            _refuse_a_part(validation)
        has_validation = validation is not None
        self.validation = every_batch(validation, config, shuffle=False) if has_validation else None
        self.ood = None if ood is None else self._ood_part(ood)
        if (config.regularizer is None) != (ood is None):
            raise ConfigError("ood= and FitConfig(regularizer=...) go together: give both or none")
        self.steps_per_epoch = self._agreed(self.train.steps_per_epoch)

    def _agreed(self, steps: int) -> int:
        """Processes step together: where one has fewer batches, the others would wait for it."""
        found = self._runtime.gather(steps)
        if len(set(found)) > 1:
            raise DataError(
                f"the processes have {', '.join(map(str, found))} batches an epoch, and a step is "
                "one of all of them: give every process as many batches"
            )
        return steps

    def _ood_part(self, ood: Any) -> Batches:
        """OOD inputs, of which members need no row each: a batch may have fewer rows than they."""
        rows = self._config.ood_batch_size or self._config.batch_size
        own = getattr(ood, "batch_size", None) or rows  # of a DataLoader
        smallest = min(self._smallest, max(1, own // self._runtime.world))
        return self._own_part(ood, self._config.seed + 1, rows, smallest)

    def _own_part(self, data: Any, seed: int, batch_size: int, smallest: int) -> Batches:
        return Batches(
            data,
            batch_size=batch_size,
            seed=seed,
            rank=self._runtime.rank,
            world=self._runtime.world,
            workers=self._config.workers,
            smallest=smallest,
        )

    def whole(self) -> Batches:
        """All of the training data on every process, without batches too small to train on."""
        return every_batch(self.train.source, self._config, smallest=self._smallest)

    def num_data(self, likelihood: Likelihood) -> int:
        """What divides the KL: counted, or as the settings say, with a warning if they differ.

        The same in all processes: of ready batches, of which each has its own, those of all.
        """
        found = self._runtime.gather(num_elements(self.train, likelihood))
        total = sum(found) if is_own_part(self.train.reader) else sum(found) / len(found)
        counted, given = round(total), self._config.num_data
        if given is not None:
            warn_num_data(given, counted)
        return counted if given is None else given

    def batches(self, step: int) -> Iterator[tuple[Any, Any]]:
        """Batches from a step on, without end, each with one of OOD inputs if there are."""
        others = self._ood_inputs(step)
        while True:
            epoch, start = divmod(step, self.steps_per_epoch)
            for batch in self.train.epoch(epoch, start):
                step += 1
                yield batch, next(others)

    def _ood_inputs(self, step: int) -> Iterator[Any]:
        while self.ood is None:
            yield None
        while True:
            epoch, start = divmod(step, self.ood.steps_per_epoch)
            for inputs, _ in self.ood.epoch(epoch, start):
                step += 1
                yield inputs


def _refuse_a_part(validation: Any) -> None:
    """Processes share validation data out themselves: of parts they would see parts of parts."""
    own = getattr(validation, "batch_sampler", None)
    samplers = (getattr(validation, "sampler", None), getattr(own, "sampler", None))
    if any(isinstance(sampler, DistributedSampler) for sampler in samplers):
        raise DataError(
            "the validation data come by a DistributedSampler, which gives every process a part of "
            "them; expected all of them in every process, which share the batches out themselves: "
            "leave the sampler out"
        )
