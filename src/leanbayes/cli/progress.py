"""Progress on stderr: a bar a stage on a terminal, one line a stage elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tick = Callable[[], object]


@contextmanager
def stage(name: str, steps: int) -> Iterator[Tick]:
    """Show one stage of so many steps; call what it yields after each of them.

    Example:
        >>> with stage("training", steps=2) as tick:
        ...     for _ in range(2):
        ...         tick()
    """
    if sys.stderr.isatty():
        from tqdm import tqdm

        with tqdm(total=steps, desc=f"{name:<28}", file=sys.stderr, unit="step") as bar:
            yield bar.update
        return
    start = time.perf_counter()
    yield lambda: None
    sys.stderr.write(f"{name}: {steps} steps, {time.perf_counter() - start:.1f} s\n")
    sys.stderr.flush()
