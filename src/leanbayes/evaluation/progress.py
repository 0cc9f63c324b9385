"""Progress of an evaluation on stderr: a bar with the time left, or lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, Final, TextIO

from leanbayes.train.watch import Clock, Pace, clock_time, short

BAR: Final = "{desc:<28}{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
SHOWN: Final = ("accuracy", "mean_iou", "rmse", "nll", "auroc_total")
EVERY = 10.0  # seconds between two lines within a split


class Meter:
    """One bar over all splits, by their cost; elsewhere a line a split, and every 10 s.

    Args:
        progress: None: a bar on a terminal, lines elsewhere; True: a bar; False: nothing.
        total: Cost of all that is to be done, in predictions of a row.
        splits: How many there are.
        stream: Where to write instead of stderr.
        clock: Gives the time in seconds.
    """

    def __init__(
        self,
        progress: bool | None,
        total: int,
        splits: int,
        *,
        done: int = 0,
        stream: TextIO | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.out = sys.stderr if stream is None else stream
        self.total, self.splits, self.number = total, splits, done
        self.speaks, self.clock = progress is not False, clock
        self.units, self.name = 0, ""
        self.pace = Pace(0, clock)
        self.spoke = self.pace.start
        self.bar: Any = self._open() if self.speaks and (progress or self.out.isatty()) else None

    def begin(self, name: str) -> None:
        """A split begins."""
        self.name = name
        if self.bar is not None:
            self.bar.set_description_str(name)

    def advance(self, units: int) -> None:
        """So much has been done."""
        self.units += units
        if self.bar is not None:
            self.bar.update(units)
        elif self.speaks and self.clock() - self.spoke >= EVERY:
            self._write(f"{self.name}: {self.units / max(self.total, 1):.0%} of all{self._left()}")

    def end(self, figures: Mapping[str, Any], count: int) -> None:
        """A split has ended: say its main figures."""
        self.number += 1
        shown = [f"{n} {short(figures[n])}" for n in SHOWN if figures.get(n) is not None]
        if self.bar is not None:
            self.bar.set_postfix_str(", ".join(shown[:2]))
        elif self.speaks:
            words = ", ".join([f"{count} rows", *shown])
            self._write(f"{self.name}: {words} ({self.number}/{self.splits}{self._left()})")

    def close(self) -> None:
        """Leave the bar."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def _open(self) -> Any:
        from tqdm import tqdm

        return tqdm(total=self.total, file=self.out, bar_format=BAR, dynamic_ncols=True)

    def _left(self) -> str:
        _, rate = self.pace.at(self.units)
        left = self.total - self.units
        return f", {clock_time(left / rate)} left" if rate > 0 and left > 0 else ""

    def _write(self, line: str) -> None:
        self.spoke = self.clock()
        self.out.write(f"evaluation: {line}\n")
        self.out.flush()
