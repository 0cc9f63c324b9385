"""What a user sees of a run: a bar or lines on stderr, and a file of figures for later."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from leanbayes.errors import CheckpointError
from leanbayes.train.callbacks import Callback, Figures, Run
from leanbayes.train.folder import write_file

Clock = Callable[[], float]


class Pace:
    """Time since the start of this call, and how fast its steps go.

    Example:
        >>> ticks = iter([0.0, 4.0])
        >>> Pace(step=10, clock=lambda: next(ticks)).at(18)
        (4.0, 2.0)
    """

    def __init__(self, step: int = 0, clock: Clock = time.monotonic) -> None:
        self.clock, self.first, self.start = clock, step, clock()

    def at(self, step: int) -> tuple[float, float]:
        """Seconds since the start, steps a second."""
        seconds = self.clock() - self.start
        return seconds, (step - self.first) / seconds if seconds > 0 else 0.0


class Watch(Callback):
    """A bar on a terminal, a line every 10 s elsewhere, silence with `progress=False`.

    The first process alone speaks, on stderr. `FitConfig(progress=True)` gives a bar even where
    stderr is no terminal (a notebook).

    Args:
        stream: Where to write instead of stderr.
        every: Seconds between two lines.
        clock: Gives the time in seconds.
    """

    def __init__(
        self, stream: TextIO | None = None, every: float = 10.0, clock: Clock = time.monotonic
    ) -> None:
        self.stream, self.every, self.clock = stream, every, clock
        self._bar: Any = None
        self._speaks = False

    def on_start(self, run: Run) -> None:
        """Open the bar, or write the first line."""
        progress = run.config.progress
        self._out = self.stream if self.stream is not None else sys.stderr
        self._speaks = run.rank == 0 and progress is not False
        self._pace = Pace(run.step, self.clock)
        self._spoke = self._pace.start
        if not self._speaks:
            return
        if progress or self._out.isatty():
            self._bar = self._open(run)
        else:
            again = f", going on from step {run.step}" if run.step else ""
            self._write(f"training: {run.total_steps} steps{again}")

    def on_step(self, run: Run, figures: Figures) -> None:
        """Move the bar, or write a line if the last one is long enough ago."""
        if not self._speaks:
            return
        if self._bar is not None:
            self._bar.set_postfix_str(self._words(run, figures), refresh=False)
            self._bar.update(run.step - self._bar.n)
        elif self.clock() - self._spoke >= self.every:
            self._spoke = self.clock()
            self._write(f"{_position(run)}: {self._words(run, figures)}, {self._left(run)}")

    def on_evaluate(self, run: Run, figures: Figures) -> None:
        """One line, always: there are few of them."""
        if self._speaks:
            words = ", ".join(f"{name} {short(value)}" for name, value in figures.items())
            self._write(f"{_position(run)}: validation {words}")

    def on_end(self, run: Run, result: Any) -> None:
        """Close the bar; a last line with the reason where the run has ended early."""
        if not self._speaks:
            return
        if self._bar is not None:
            self._bar.update(run.step - self._bar.n)
            self._bar.close()
            self._bar = None
        seconds, _ = self._pace.at(run.step)
        stopped = getattr(result, "stopped", "")
        why = f" ({stopped})" if stopped else ""
        self._write(f"ended at step {run.step}{why} after {clock_time(seconds)}")

    def _open(self, run: Run) -> Any:
        from tqdm import tqdm

        return tqdm(
            total=run.total_steps,
            initial=run.step,
            desc="training",
            unit="step",
            file=self._out,
            dynamic_ncols=True,
        )

    def _write(self, line: str) -> None:
        if self._bar is not None:
            self._bar.write(line, file=self._out)
        else:
            self._out.write(line + "\n")
            self._out.flush()

    def _words(self, run: Run, figures: Figures) -> str:
        words = [f"{n} {short(figures[n])}" for n in ("loss", "nll", "kl") if n in figures]
        if "sigma_median" in figures:
            low, mid, high = (short(figures[f"sigma_{n}"]) for n in ("min", "median", "max"))
            words.append(f"sigma {mid} ({low} to {high})")
        _, rate = self._pace.at(run.step)
        return ", ".join([*words, f"{short(rate * run.rows_per_step)} samples/s"])

    def _left(self, run: Run) -> str:
        _, rate = self._pace.at(run.step)
        left = clock_time((run.total_steps - run.step) / rate) if rate > 0 else "?"
        return f"{left} left"


class MetricsFile(Callback):
    """`metrics.jsonl` in the run's directory: one JSON object a line, the first process only.

    A line has `kind` (train or validation), `step`, `epoch`, the figures, and at its end the
    timings `seconds` and `rate` (samples a second). Where a run goes on, lines of steps after the
    checkpoint are dropped, so that the file of an interrupted run is that of an uninterrupted one
    but for the timings. A figure that is infinite or not a number is null: JSON has neither.

    Args:
        clock: Gives the time in seconds.
    """

    NAME = "metrics.jsonl"

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self._path: Path | None = None

    def on_start(self, run: Run) -> None:
        """Keep the lines up to this step; none where the run begins."""
        self._pace = Pace(run.step, self.clock)
        if run.rank != 0 or run.folder is None:
            return
        self._path = run.folder / self.NAME
        kept = _lines_until(self._path, run.step) if run.step else ()
        write_file(self._path, b"".join(kept))

    def on_step(self, run: Run, figures: Figures) -> None:
        """A line of training figures."""
        self._append("train", run, figures)

    def on_evaluate(self, run: Run, figures: Figures) -> None:
        """A line of validation figures."""
        self._append("validation", run, figures)

    def on_save(self, run: Run, path: Path | None) -> None:  # noqa: ARG002
        """The lines up to a checkpoint are as safe from a power cut as the checkpoint."""
        if self._path is not None:
            with self._path.open("ab") as file:
                os.fsync(file.fileno())

    def _append(self, kind: str, run: Run, figures: Figures) -> None:
        if self._path is None:
            return
        seconds, rate = self._pace.at(run.step)
        timings = {"seconds": round(seconds, 3), "rate": round(rate * run.rows_per_step, 1)}
        place = {"kind": kind, "step": run.step, "epoch": run.epoch}
        line = json.dumps({**place, **_plain(figures), **timings}, allow_nan=False)
        try:
            # Opened for each line: nothing is held back, and nothing to close when a run breaks.
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise CheckpointError(f"cannot write {self._path.name}: {error.strerror}") from error


def _lines_until(path: Path, step: int) -> Iterator[bytes]:
    """Lines of steps up to this one; a line that was cut off in writing is left out."""
    if not path.is_file():
        return
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if line.endswith(b"\n") and isinstance(found, dict) and found.get("step", math.inf) <= step:
            yield line


def _plain(figures: Mapping[str, float]) -> dict[str, float | None]:
    return {k: float(v) if math.isfinite(v) else None for k, v in figures.items()}


def _position(run: Run) -> str:
    return f"step {run.step}/{run.total_steps} (epoch {run.step / run.steps_per_epoch:.1f})"


def short(value: float) -> str:
    """Four digits at most.

    Example:
        >>> short(0.00410321), short(12345.6), short(0.5)
        ('0.0041', '1.235e+04', '0.5')
    """
    return f"{value:.4g}" if value >= 1000 or value == 0 else f"{value:.3g}"


def clock_time(seconds: float) -> str:
    """Hours, minutes and seconds.

    Example:
        >>> clock_time(75), clock_time(3671.4)
        ('1:15', '1:01:11')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
