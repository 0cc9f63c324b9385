"""The processes of an evaluation: who runs which rows, and how their tallies become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from leanbayes.errors import ConfigError, LeanBayesError
from leanbayes.model import BayesianModel, is_sharded
from leanbayes.train.folder import differences
from leanbayes.train.processes import Processes, is_open


class Merges(Protocol):
    """What takes over what another one has seen."""

    def merge(self, other: Self) -> None:
        """Add rows that come after."""


Found = TypeVar("Found")
Part = TypeVar("Part", bound=Merges)


@dataclass(frozen=True)
class Crew:
    """This process among those of the open group; alone without one.

    Attributes:
        processes: Of the group.
        sharded: True under FSDP2, where a pass is a joint affair and all run all rows.
    """

    processes: Processes
    sharded: bool

    @staticmethod
    def found(model: BayesianModel) -> Crew:
        """Who is there."""
        return Crew(Processes.found() if is_open() else Processes(), is_sharded(model))

    @property
    def rank(self) -> int:
        """Of this process."""
        return self.processes.rank

    @property
    def sharing(self) -> int:
        """Processes that share the rows of a split."""
        return 1 if self.sharded else self.processes.world

    def check_same(self, own: Mapping[str, Any]) -> None:
        """Refuse processes with other weights, data or settings than the first."""
        first = self.processes.broadcast(own)
        lines = differences(first, own, "", frozenset())
        wrong = [rank for rank, n in enumerate(self.processes.gather(len(lines))) if n]
        if wrong:
            words = f"; here: {'; '.join(lines[:4])}" if lines else ""
            raise ConfigError(
                f"processes {wrong} evaluate something else than the first{words}. Give all of "
                "them the same model (runtime.share_buffers(model) for BatchNorm), suite and seed"
            )

    def by_first(self, work: Callable[[], Found]) -> Found:
        """What the first process makes of it, or its error, in all of them."""
        outcome: tuple[Any, Exception | None] = (None, None)
        if self.rank == 0:
            try:
                outcome = (work(), None)
            except LeanBayesError as error:
                outcome = (None, error)
        value, failure = self.processes.broadcast(outcome)
        if failure is not None:
            raise failure
        found: Found = value
        return found

    def joined(self, work: Callable[[], Part | None], name: str) -> Part:
        """The tallies of all processes, by rank; an error of one is an error of all."""
        part, failure = None, None
        try:
            part = work()
        except Exception as error:
            if self.sharing == 1:
                raise
            failure = error
        return self._merged(part, failure, name)

    def _merged(self, part: Part | None, failure: Exception | None, name: str) -> Part:
        if self.sharing == 1:
            parts: list[Any] = [(part, None)]
        else:
            parts = self.processes.gather((part, None if failure is None else str(failure)))
        if failure is not None:
            raise failure
        wrong = {rank: words for rank, (_, words) in enumerate(parts) if words is not None}
        if wrong:
            rank, words = next(iter(wrong.items()))
            raise LeanBayesError(f"split {name!r}: process {rank} has failed: {words}")
        total, *others = [found for found, _ in parts if found is not None]
        for other in others:
            total.merge(other)
        result: Part = total
        return result
