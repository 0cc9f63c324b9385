"""How work is measured: operations, bytes kept for the backward pass, memory, time."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

Work = Callable[[], object]
Clock = Callable[[], float]
# Seconds that one of two works runs at least before the other has its turn. A GPU has enough to
# fill its queue, as in training: in a single step it waits for the first calls of the host.
TURN, GPU_TURN = 0.02, 0.1


class Timed(NamedTuple):
    """Two works against each other.

    Attributes:
        ratio: Median over the rounds of the first's time over the second's.
        seconds: Median time of one run of the second.
    """

    ratio: float
    seconds: float


def flops(work: Work) -> int:
    """Operations of matrix products and convolutions, as torch counts them: 2 a multiply-add.

    Example:
        >>> layer, x = torch.nn.Linear(4, 3), torch.zeros(5, 4)
        >>> flops(lambda: layer(x)) == 2 * 5 * 4 * 3
        True
    """
    own = {torch.ops.aten.convolution_backward: _convolution_backward}
    with FlopCounterMode(display=False, custom_mapping=own) as counter:
        work()
    return int(counter.get_total_flops())


def _convolution_backward(*shapes: Any, **_rest: Any) -> int:
    """Each of the two gradients costs a forward pass; torch forgets the groups in the second."""
    grad, inputs, weight, *_, mask = shapes
    transposed = shapes[7]
    rows = inputs if transposed else grad  # every entry meets a row of the weight
    forward: int = 2 * math.prod(rows) * math.prod(weight[1:])
    return forward * (bool(mask[0]) + bool(mask[1]))


def saved_bytes(work: Work, apart: Collection[Tensor] = ()) -> int:
    """Bytes that a forward pass keeps for its backward pass, every storage once.

    It is the same on all devices but for what fused kernels keep to themselves, and for
    convolutions between factors, which keep less on a GPU.

    Args:
        work: The forward pass; what it returns is dropped.
        apart: Tensors that are there anyway, such as parameters and inputs.

    Example:
        >>> x = torch.ones(8, requires_grad=True)
        >>> saved_bytes(lambda: x.exp())  # its own result, 8 floats
        32
    """
    there = {_place(tensor) for tensor in apart}
    kept: dict[Any, int] = {}

    def note(tensor: Tensor) -> Tensor:
        place = _place(tensor)
        if place not in there:
            kept[place] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        held = work()
    del held  # until here: a storage that is gone could be another one's place
    return sum(kept.values())


def _place(tensor: Tensor) -> Any:
    return tensor.device, tensor.untyped_storage().data_ptr()


def peak_bytes(make: Callable[[], Work], device: torch.device) -> int | None:
    """The most that a work takes on a GPU, with what was made for it; None elsewhere.

    The making itself does not count: of an ensemble it takes a copy of all members for a moment.
    """
    if device.type != "cuda":
        return None
    gc.collect()  # of earlier works nothing may go while this one is measured
    before = torch.cuda.memory_allocated(device)
    work = make()
    gc.collect()
    torch.cuda.reset_peak_memory_stats(device)
    for _ in range(2):  # an optimiser makes its state in the first step
        work()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def clock_of(device: torch.device) -> Clock:
    """Seconds of the processor, which other programs change little; of a GPU those of the wall."""
    if device.type != "cuda":
        return time.process_time

    def now() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return now


def turn_of(device: torch.device) -> float:
    """Seconds of a turn on a device."""
    return GPU_TURN if device.type == "cuda" else TURN


def timed(
    first: Work,
    second: Work,
    *,
    rounds: int,
    seconds: float,
    clock: Clock,
    turn: float = TURN,
) -> Timed:
    """The two in turns, who is first alternating too, so that slow drifts of a machine cancel.

    Args:
        first: Above the line.
        second: Below the line.
        rounds: At most; fewer where they take too long.
        seconds: After which no further round begins.
        clock: Gives the time.
        turn: Seconds that one of them runs at least before the other does.
    """
    start = clock()
    works = (first, second)
    found: list[tuple[float, float]] = []
    with _uncollected():
        runs = [_runs(work, clock, turn) for work in works]
        while len(found) < rounds and (not found or clock() - start < seconds):
            times = [0.0, 0.0]
            for which in (0, 1) if len(found) % 2 else (1, 0):
                times[which] = _time(works[which], runs[which], clock)
            found.append((times[0], times[1]))
    return Timed(median(a / b for a, b in found), median(b for _, b in found))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Python's collection of cycles waits: it costs by what else is in memory, not by the work."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _runs(work: Work, clock: Clock, turn: float) -> int:
    """Runs that make a turn, by the second of two: the first one warms up."""
    _time(work, 1, clock)
    return max(1, math.ceil(turn / max(_time(work, 1, clock), 1e-6)))


def _time(work: Work, runs: int, clock: Clock) -> float:
    start = clock()
    for _ in range(runs):
        work()
    return max((clock() - start) / runs, 1e-9)
