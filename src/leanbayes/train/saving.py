"""The whole state of a run as files, and back: bitwise, on every process."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leanbayes.errors import CheckpointError, ConfigError
from leanbayes.train.ema import Average
from leanbayes.train.state import generators, pack, set_generators, unpack
from leanbayes.train.step import Stepper
from leanbayes.train.store import Store


@dataclass
class Progress:
    """Where a run stands; everything else of its position follows from the step.

    Attributes:
        step: Steps taken.
        best: The best value of the monitored figure so far.
        best_step: When that was.
        waited: Evaluations since then.
        stopped: Why the run has ended early, or "".
        done: The run has ended.
        pending: A signal came during the evaluation of this step, which is still to be done.
    """

    step: int = 0
    best: float | None = None
    best_step: int = 0
    waited: int = 0
    stopped: str = ""
    done: bool = False
    pending: bool = False
    history: list[dict[str, float]] = field(default_factory=list)

    def reopened(self, total_steps: int, patience: int | None) -> bool:
        """True where a run that has ended goes on: it is longer now, or more patient."""
        waits = patience is None or self.waited < patience
        again = (self.done or bool(self.stopped)) and self.step < total_steps and waits
        if again:
            self.done, self.stopped = False, ""
        return again


class Saver:
    """Writes and reads checkpoints of a run; without a store it does nothing.

    All processes take part (shards are gathered, every generator is kept), the first one writes,
    and all learn whether that went well.
    """

    def __init__(self, store: Store | None, stepper: Stepper, average: Average | None) -> None:
        self.store, self.stepper, self.average = store, stepper, average

    def save(self, progress: Progress, *, best: bool = False) -> None:
        """Write a checkpoint of this very moment."""
        if self.store is None:
            return
        runtime = self.stepper.parts.runtime
        tree = self.state(progress)
        outcome = None
        if runtime.is_first:
            try:
                self.store.save(progress.step, pack(tree), best=best)
            except CheckpointError as error:
                outcome = str(error)
        outcome = runtime.broadcast(outcome)
        if outcome is not None:
            raise CheckpointError(outcome)

    def state(self, progress: Progress) -> dict[str, Any]:
        """Everything that the next step depends on."""
        parts = self.stepper.parts
        model, optimizer = parts.runtime.full_state(parts.module, parts.optimizer)
        return {
            "progress": vars(progress),
            "model": model,
            "optimizer": optimizer,
            "likelihood": dict(parts.likelihood.state_dict()),
            "scaler": parts.runtime.scaler_state(),
            "average": None if self.average is None else self.average.state(),
            "accumulate": self.stepper.accumulate,
            "world": parts.runtime.world,
            "generators": parts.runtime.gather(generators()),
        }

    def resume(self, total_steps: int) -> Progress | None:
        """Go on where the newest valid checkpoint left off; None where there is none."""
        if self.store is None:
            return None
        runtime = self.stepper.parts.runtime
        newest = runtime.broadcast(self._newest() if runtime.is_first else None)
        if isinstance(newest, str):
            raise CheckpointError(newest)
        if newest is None:
            return None
        progress = self.restore(unpack(newest))
        ended, patience = progress.done, self.stepper.parts.config.patience
        if progress.reopened(total_steps, patience) and ended and self.average is not None:
            raise ConfigError(
                f"the run ended at step {progress.step} and kept the averages of its weights (ema) "
                f"alone, so it cannot go on to step {total_steps}. Choose another folder for a "
                "longer run, or the old length to have this one"
            )
        return progress

    def _newest(self) -> Mapping[str, bytes] | str | None:
        assert self.store is not None
        try:
            found = self.store.newest()
        except CheckpointError as error:
            return str(error)
        return None if found is None else found[1]

    def restore(self, tree: dict[str, Any]) -> Progress:
        """Set everything to a saved state."""
        try:
            return self._restore(tree)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"the checkpoint does not fit this run: {error}") from error

    def _restore(self, tree: dict[str, Any]) -> Progress:
        parts = self.stepper.parts
        parts.runtime.load_full_state(
            parts.module, parts.optimizer, tree["model"], tree["optimizer"]
        )
        parts.likelihood.load_state_dict(tree["likelihood"])
        parts.runtime.load_scaler_state(tree["scaler"])
        if self.average is not None and tree["average"] is not None:
            self.average.load(tree["average"])
        self.stepper.accumulate = tree["accumulate"]
        progress = Progress(**tree["progress"])
        if self.stepper.edit is not None:
            self.stepper.edit.steps = progress.step
        self._restore_generators(tree["generators"], progress.step)
        return progress

    def _restore_generators(self, saved: list[Any], step: int) -> None:
        runtime, config = self.stepper.parts.runtime, self.stepper.parts.config
        if len(saved) == runtime.world:
            set_generators(saved[runtime.rank])
            return
        warnings.warn(
            f"the checkpoint was written by {len(saved)} processes and {runtime.world} go on with "
            "it: weights, optimiser, position and order of the data are the same, the noise of the "
            "draws is not, so the run is right but not bit for bit the one it would have been",
            stacklevel=2,
        )
        runtime.seed(config.seed + 1_000_003 * step)
