"""What a conversion did: converted layers, those left and why, parameters added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Converted:
    """One converted layer."""

    name: str
    type: str
    slots: tuple[str, ...]
    added: int


@dataclass(frozen=True)
class Skipped:
    """One layer, or raw parameter, that stays deterministic, and why."""

    name: str
    type: str
    reason: str


@dataclass(frozen=True)
class ConversionReport:
    """The record of one `bayesianize` call; prints as a table.

    Attributes:
        method: Name of the method.
        converted: Converted layers in the order of the network.
        skipped: Layers and raw parameters that stay as they are, with the reason.
        notes: What else a user should know.
        base: Parameters of the network before.
        added: Parameters added by the posteriors.
        random_dimensions: Random numbers of one draw; a member index and masks of activations come
            on top.
        index_members: Members under one index for the whole network; 0 without such an index.
        output: Name of the layer that counts as the output.
        stem: Name of the layer that counts as the first.
    """

    method: str
    converted: tuple[Converted, ...]
    skipped: tuple[Skipped, ...]
    base: int
    added: int
    random_dimensions: int = 0
    index_members: int = 0
    output: str | None = None
    stem: str | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def overhead(self) -> float:
        """Parameters added, as a fraction of the network's own."""
        return self.added / self.base if self.base else 0.0

    def _randomness(self) -> str:
        text = f"{self.random_dimensions:,} random dimensions a draw"
        return text + (f" of one of {self.index_members} members" if self.index_members else "")

    def __str__(self) -> str:
        lines = [
            f"{self.method}: {len(self.converted)} layers converted, {len(self.skipped)} left; "
            f"{self.base:,} parameters + {self.added:,} ({self.overhead:.1%}); {self._randomness()}"
        ]
        rows = [
            (c.name or "(root)", c.type, ", ".join(c.slots), f"+{c.added:,}")
            for c in self.converted
        ]
        lines += _table(("converted layer", "type", "slots", "parameters"), rows)
        left = [(s.name or "(root)", s.type, s.reason) for s in self.skipped]
        lines += _table(("left as it is", "type", "reason"), left)
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    text = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in [head, *rows]]
    return [
        "",
        text[0].rstrip(),
        "-" * len(text[0].rstrip()),
        *(line.rstrip() for line in text[1:]),
    ]
