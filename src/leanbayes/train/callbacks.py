"""Those who are told of a run: the base class, and trackers that are imported when asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leanbayes.errors import ConfigError

if TYPE_CHECKING:
    from leanbayes.train.config import FitConfig

Figures = Mapping[str, float]


@dataclass
class Run:
    """Where a run stands, as callbacks see it.

    Attributes:
        config: Every number of the run.
        step: Steps taken, over all restarts.
        epoch: Epochs ended.
        total_steps: Steps of the whole run.
        steps_per_epoch: Steps of an epoch.
        folder: The run's directory; None where nothing is written.
        rank: Number of this process, 0 for the first.
        rows: Rows that a step sends through the network, all draws and processes together; 0 takes
            `batch_size * samples` of the config.
    """

    config: FitConfig
    step: int = 0
    epoch: int = 0
    total_steps: int = 0
    steps_per_epoch: int = 1
    folder: Path | None = None
    rank: int = 0
    rows: int = 0

    @property
    def rows_per_step(self) -> int:
        """Examples times draws of a step: what `samples a second` counts."""
        return self.rows or self.config.batch_size * self.config.samples


class Callback:
    """Told of everything that happens in a run, on every process; does nothing by itself.

    Figures are plain numbers. They come every `log_every` steps: reading them makes a GPU wait.

    Example:
        >>> class Loud(Callback):
        ...     def on_evaluate(self, run, figures):
        ...         print(f"step {run.step}: {figures['nll']:.3f}")
        >>> Loud().on_evaluate(Run(config=None, step=5), {"nll": 0.25})
        step 5: 0.250
    """

    def on_start(self, run: Run) -> None:
        """Before the first step of this call; `run.step` is above 0 where a run goes on."""

    def on_step(self, run: Run, figures: Figures) -> None:
        """After a step whose figures were read."""

    def on_evaluate(self, run: Run, figures: Figures) -> None:
        """After an evaluation on the validation data."""

    def on_save(self, run: Run, path: Path | None) -> None:
        """After a checkpoint was written."""

    def on_end(self, run: Run, result: Any) -> None:
        """After the last step; not called where an error or a signal ends the run."""


class TensorBoard(Callback):
    """Writes every figure as a scalar for TensorBoard; the first process only.

    Args:
        folder: Where event files go; None takes `tensorboard` in the run's directory.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._writers = _imported(
            "torch.utils.tensorboard", "TensorBoard", "pip install tensorboard"
        )
        self.folder = folder
        self._writer: Any = None

    def on_start(self, run: Run) -> None:
        """Open the event file; events after the step where a run goes on are purged."""
        if run.rank != 0:
            return
        folder = self.folder or (None if run.folder is None else run.folder / "tensorboard")
        if folder is None:
            raise ConfigError(
                "TensorBoard needs a folder: write TensorBoard('events'), or FitConfig(folder=...)"
            )
        purge = run.step + 1 if run.step else None
        self._writer = self._writers.SummaryWriter(str(folder), purge_step=purge)

    def on_step(self, run: Run, figures: Figures) -> None:
        """Scalars under `train/`."""
        self._write("train", run, figures)

    def on_evaluate(self, run: Run, figures: Figures) -> None:
        """Scalars under `validation/`."""
        self._write("validation", run, figures)
        if self._writer is not None:
            self._writer.flush()

    def on_end(self, run: Run, result: Any) -> None:  # noqa: ARG002
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, kind: str, run: Run, figures: Figures) -> None:
        if self._writer is not None:
            for name, value in figures.items():
                self._writer.add_scalar(f"{kind}/{name}", value, run.step)


class MLflow(Callback):
    """Logs the config and every figure to MLflow; the first process only.

    A run of MLflow that is active already is used and left open. Otherwise one is started, a new
    one too where a training run goes on after an interruption.

    Args:
        run_name: Name of the run in MLflow; its own choice if None.
    """

    def __init__(self, run_name: str | None = None) -> None:
        self._mlflow = _imported("mlflow", "MLflow", "pip install mlflow-skinny")
        self.run_name = run_name
        self._active = self._own = False

    def on_start(self, run: Run) -> None:
        """Join the active run or start one, and log the config."""
        if run.rank != 0:
            return
        self._own = self._mlflow.active_run() is None
        if self._own:
            self._mlflow.start_run(run_name=self.run_name)
        self._active = True
        self._mlflow.log_params({k: str(v) for k, v in run.config.to_json().items()})

    def on_step(self, run: Run, figures: Figures) -> None:
        """Metrics named `train.NAME`."""
        self._write("train", run, figures)

    def on_evaluate(self, run: Run, figures: Figures) -> None:
        """Metrics named `validation.NAME`."""
        self._write("validation", run, figures)

    def on_end(self, run: Run, result: Any) -> None:  # noqa: ARG002
        """End the run if it is ours."""
        if self._active and self._own:
            self._mlflow.end_run()
        self._active = False

    def _write(self, kind: str, run: Run, figures: Figures) -> None:
        if self._active:
            named = {f"{kind}.{name}": float(value) for name, value in figures.items()}
            self._mlflow.log_metrics(named, step=run.step)


def _imported(module: str, name: str, cure: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"the callback {name} needs a package that is not installed ({error}): {cure}. "
            "Without it every figure is still in metrics.jsonl of the run's folder"
        ) from error
