"""What an experiment is: typed settings, and rows of figures that say how they came about."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from leanbayes.train.config import FitConfig

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """An experiment of a paper, run by `leanbayes experiment NAME --set key=value`.

    Attributes:
        root: Folder of the data, where they are needed.
        seed: Of weights, order and draws.
        device: Where it runs.
        smoke: A few steps on few data, to see that it runs.
        name: On the command line.
        asked: Settings that are lists of what is asked for. They say which rows there are, but not
            what a row is: a file may be given further ones.
    """

    name: ClassVar[str] = ""
    asked: ClassVar[tuple[str, ...]] = ()

    root: str = ""
    seed: int = 0
    device: str = "cpu"
    smoke: bool = False

    @abstractmethod
    def parts(self) -> Iterator[tuple[str, Callable[[], Row]]]:
        """What it consists of: a label and the work that gives a row of figures, each.

        Labels differ, and a row depends on no other one having run before: parts may run side by
        side in several processes, each with what it shares made anew.
        """

    def rows(self) -> Iterator[Row]:
        """The rows one after another, each with its label and seconds."""
        for label, work in self.parts():
            yield timed(label, work)


def plain(config: FitConfig) -> Row:
    """What the settings say, without what they leave open."""
    return {key: value for key, value in config.to_json().items() if value is not None}


def timed(label: str, work: Callable[[], Row]) -> Row:
    """The row of a part, with its label and seconds.

    Example:
        >>> timed("a", lambda: {"x": 1})
        {'label': 'a', 'x': 1, 'seconds': 0.0}
    """
    start = time.perf_counter()
    found = work()
    return {"label": label, **found, "seconds": round(time.perf_counter() - start, 2)}
