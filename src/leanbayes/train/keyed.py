"""Random numbers of the data: by key, beside the generators that training draws from.

Augmentations draw from the global generators of torch, `random` and numpy. In a run these belong to
the posterior's noise and are part of a checkpoint, and what a worker process draws depends on how
many there are. So every example is read under generators that are seeded by (seed, epoch, index):
the same example whatever the workers, its place in the epoch, the process and the restarts.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from leanbayes.noise import key_seed


class Generators(NamedTuple):
    """States of the three global generators of the CPU."""

    torch: Tensor
    python: Any
    numpy: Any


def states() -> Generators:
    """The states at this moment; generators of GPUs are left alone, as loading uses none."""
    now = np.random.get_state(legacy=False)  # noqa: NPY002 - what augmentations draw from
    return Generators(torch.default_generator.get_state(), random.getstate(), now)


def set_states(found: Generators) -> None:
    """Go back to what `states` gave."""
    torch.default_generator.set_state(found.torch)
    random.setstate(found.python)
    np.random.set_state(found.numpy)  # noqa: NPY002


def seed_all(key: int) -> None:
    """Seed the three generators of the CPU; `torch.manual_seed` would seed the GPUs' too."""
    torch.default_generator.manual_seed(key)
    random.seed(key)
    # One word, not the two of `random`, which is the same generator: its numbers would be the same.
    np.random.seed(key >> 31 & 0xFFFFFFFF)  # noqa: NPY002


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Torch's generators under a seed, and as before afterwards."""
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


class Keyed(Dataset[Any]):
    """A dataset whose randomness in `__getitem__` is keyed by (seed, epoch, index).

    `torch.initial_seed()` is the key there, for augmentations with a generator of their own:
    `np.random.default_rng(torch.initial_seed())`.

    Cost: about 25 microseconds an example.
    """

    def __init__(self, examples: Any, seed: int, epoch: int) -> None:
        self.examples, self.seed, self.epoch = examples, seed, epoch

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Any:
        seed_all(key_seed(self.seed, f"example/{self.epoch}", index))
        return self.examples[index]


@contextmanager
def kept() -> Iterator[None]:
    """Whatever is drawn inside, the generators are afterwards what they were."""
    before = states()
    try:
        yield
    finally:
        set_states(before)


class Stream:
    """A set of generators of its own for code that draws from the global ones.

    Example:
        >>> stream, before = Stream(7), torch.random.get_rng_state()
        >>> with stream.active():
        ...     _ = torch.rand(3)
        >>> bool((torch.random.get_rng_state() == before).all())
        True
    """

    def __init__(self, key: int) -> None:
        self._key = key
        self._state: Generators | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Draw from the stream, where it left off; the global generators come back afterwards."""
        with kept():
            if self._state is None:
                seed_all(self._key)
            else:
                set_states(self._state)
            try:
                yield
            finally:
                self._state = states()


_END = object()


Guard = Callable[[], AbstractContextManager[None]]


def guarded(items: Iterable[Any], guard: Guard) -> Iterator[Any]:
    """The items, each of them made inside a guard: `kept`, or the `active` of a stream."""
    with guard():
        iterator = iter(items)
    while True:
        with guard():
            item = next(iterator, _END)
        if item is _END:
            return
        yield item


class Worker:
    """What a worker process of a DataLoader does first.

    Signals of a whole process group (Ctrl-C, torchrun's SIGTERM) are for the process that trains,
    which still needs its data to finish the step and save. So Ctrl-C is ignored here and a first
    SIGTERM too; the second one ends the worker. It also ends with its parent, as ever.
    """

    def __init__(self, then: Callable[[int], None] | None = None) -> None:
        self.then = then

    def __call__(self, number: int) -> None:
        """Set the signals, then run the user's own `worker_init_fn`."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _wait_for_another)
        if self.then is not None:
            self.then(number)


def _wait_for_another(number: int, _: object) -> None:
    signal.signal(number, lambda *_: os._exit(128 + number))
