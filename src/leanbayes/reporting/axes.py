"""Axes of charts: from numbers to places, and the marks between."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

MARKS = 5  # about
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
FEW = 8  # values that are marks themselves
LARGEST = 1e100  # what is beyond it is no figure, and differences of such numbers overflow


@dataclass(frozen=True)
class Axis:
    """A stretch of numbers on a stretch of the picture.

    Attributes:
        low: Smallest number.
        high: Largest number.
        start: Place of the smallest.
        end: Place of the largest.
        log: Equal factors, not equal differences, are equally far.
        root: Square roots are equally far, so that small numbers from 0 on have room.
        ticks: Marks, where these are better than round numbers.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    root: bool = False
    ticks: tuple[float, ...] = ()

    @staticmethod
    def of(
        values: Iterable[float], start: float, end: float, *, log: bool = False, zero: bool = False
    ) -> Axis:
        """An axis that holds all values with some room, and 0 where it is asked for.

        Example:
            >>> axis = Axis.of([0.0, 10.0], 0, 100, zero=True)
            >>> axis.low, round(axis.place(axis.high)), axis.marks()
            (0.0, 100, [0.0, 2.5, 5.0, 7.5, 10.0])
        """
        found = [value for value in values if drawable(value) and (value > 0 or not log)]
        low, high = (min(found), max(found)) if found else (1.0, 10.0)
        if log:
            room = max(1.12, (high / low) ** 0.06)
            return Axis(low / room, high * room, start, end, log=True)
        low, high = (min(low, 0.0), max(high, 0.0)) if zero else (low, high)
        room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
        below = 0.0 if zero and low == 0 else room
        above = 0.0 if zero and high == 0 else room
        return Axis(low - below, high + above, start, end)

    def at(self, values: Iterable[float]) -> Axis:
        """The same axis with marks at the values themselves, where these are few and regular.

        Example:
            >>> axis = Axis.of([0, 3], 0, 100)
            >>> axis.at([0, 1, 2, 3]).marks(), axis.at([0, 0.1234567, 3]).marks()
            ((0, 1, 2, 3), [0.0, 1.0, 2.0, 3.0])
        """
        found = sorted({value for value in values if self.holds(value)})
        plain = all(len(marked(value)) <= 5 for value in found)
        return replace(self, ticks=tuple(found)) if 2 < len(found) <= FEW and plain else self

    def place(self, value: float) -> float:
        """Where a number lies in the picture."""
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(value)
        if self.root:
            low, high, at = math.sqrt(low), math.sqrt(high), math.sqrt(value)
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def holds(self, value: float | None) -> bool:
        """True for a number that has a place."""
        if value is None or not drawable(value):
            return False
        return (value > 0 or not self.log) and (value >= 0 or not self.root)

    def marks(self) -> Sequence[float]:
        """Round numbers between both ends."""
        if self.ticks:
            return self.ticks
        if self.root:
            return _squares(self.low, self.high)
        return _powers(self.low, self.high) if self.log else _round(self.low, self.high)


def together(values: Iterable[float]) -> tuple[float, float] | None:
    """Ends of the values without a tenth of them at most, where these lie far from the others.

    Methods that have failed are so far off that the others would lie on one spot; without the
    worst of them the next one may be so. None where all values go well on one axis.

    Example:
        >>> together([0.1, 0.11, 0.12, 0.13, 0.14, 0.15, 0.16, 0.17, 0.18, 2.2])
        (0.1, 0.18)
        >>> together([0.1, 0.2, 2.2]), together(range(20))
        (None, None)
    """
    found = sorted(value for value in values if drawable(value))
    kept, few = found, len(found) // 10
    while len(nearer := _nearer(kept, few)) < len(kept):
        kept, few = nearer, few - (len(kept) - len(nearer))
    return (kept[0], kept[-1]) if len(kept) < len(found) else None


def _nearer(found: list[float], few: int) -> list[float]:
    """Sorted values without a few at one end, where the gap before these is most of the axis."""
    count = len(found)
    cuts = [at for at in range(1, count) if min(at, count - at) <= few]
    at = max(cuts, key=lambda at: found[at] - found[at - 1], default=0)
    if not at or found[at] - found[at - 1] <= (found[-1] - found[0]) / 2:
        return found
    return found[:at] if at > count / 2 else found[at:]


def drawable(value: float) -> bool:
    """True for a number that can have a place."""
    return math.isfinite(value) and abs(value) < LARGEST


def _round(low: float, high: float) -> list[float]:
    rough = (high - low) / MARKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in STEPS if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{at * step:.12g}") + 0.0 for at in range(first, last + 1)]


def _squares(low: float, high: float) -> list[float]:
    """Numbers of one digit whose roots are about equally far."""
    first, last = math.sqrt(low), math.sqrt(high)
    even = [(first + (last - first) * at / (MARKS - 1)) ** 2 for at in range(MARKS)]
    found = {float(f"{value:.1g}") for value in even}
    return sorted(value for value in found if low <= value <= high)


def _powers(low: float, high: float) -> list[float]:
    """Powers of ten with 2 and 5 between them, where there is room for these."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every: Sequence[int] = (1, 2, 5) if last - first <= 3 else (1,)
    marks = [factor * 10.0**power for power in range(first, last + 1) for factor in every]
    found = [mark for mark in marks if low <= mark <= high]
    # Within a factor of two there is hardly a power: round numbers are as good there.
    return found if len(found) > 1 else _round(low, high)


def marked(value: float) -> str:
    """A mark as text.

    Example:
        >>> marked(0.5), marked(20000.0), marked(-1.0), marked(0.0001)
        ('0.5', '20k', '-1', '0.0001')
    """
    size = abs(value)
    for least, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= least:
            return f"{value / (1e3 if letter == 'k' else least):g}{letter}"
    return f"{value:.6g}"
