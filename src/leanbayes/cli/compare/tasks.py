"""What a comparison has to do, starts and runs, each as soon as what it needs is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leanbayes.cli.compare.ask import Run
from leanbayes.cli.compare.runs import Bench, Outcome
from leanbayes.cli.compare.start import Begun

Task = Run | int  # a run, or the seed of a start


@dataclass(frozen=True)
class Work:
    """Does a task, in this process or another one.

    Attributes:
        bench: Knows runs and starts.
    """

    bench: Bench

    def __call__(self, task: Task) -> Begun | Outcome:
        """Train a start, or run a method."""
        if not isinstance(task, int):
            return self.bench(task)
        assert self.bench.starts is not None
        return self.bench.starts(task)

    def ready(self, task: Task) -> bool:
        """True for a start, and for a run whose starts are there: in the folder, whoever ended."""
        return isinstance(task, int) or not self.bench.untrained([task])

    def tasks(self, runs: Sequence[Run]) -> list[Task]:
        """All runs in their order; starts that are to be trained before the first that needs one.

        Example:
            Runs (a, 0), (b, 0), (a, 1) without any start: 0, (a, 0), (b, 0), 1, (a, 1).
        """
        return list(dict.fromkeys(self._in_order(runs)))

    def _in_order(self, runs: Sequence[Run]) -> Iterator[Task]:
        for run in runs:
            yield from self.bench.untrained([run])
            yield run
