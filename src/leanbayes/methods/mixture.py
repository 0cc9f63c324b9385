"""What methods with one member index for the whole network share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leanbayes.errors import ConfigError
from leanbayes.methods.assignment import (
    Assign,
    assigned,
    blocks,
    prediction_by_member,
    settle_members,
)
from leanbayes.methods.base import Method
from leanbayes.noise import NoiseSource
from leanbayes.plan import Granularity, Plan
from leanbayes.posteriors.kl import reduce_pairwise


@dataclass(frozen=True, kw_only=True)
class MixtureMethod(Method):
    """K members under one index; a row trains one of them, a sample predicts with one.

    Attributes:
        members: Number of members K.
        assign: Which member a row trains: `split` gives members contiguous blocks of a batch,
            `interleave` every K-th row, `random` any; with `tile` every row trains every member.
        kl: How the members' terms become one number: `mean` (within ln K of the mixture's KL),
            `sum`, `averaged_draw`, `pairwise`.
        granularity: Draw for every `row`, or once for all rows of a member in a `batch`: fewer
            random numbers and cheaper products, but a larger variance of the gradient. If the
            members do not have equal blocks of rows, draws are by row.
    """

    rules: ClassVar[tuple[str, ...]] = ("mean", "sum")

    members: int = 4
    assign: Assign = "split"
    kl: str = "mean"
    granularity: Granularity = "row"

    def check(self) -> None:
        """Raise on settings that cannot be."""
        settle_members(self)
        if self.assign not in ("split", "interleave", "random", "tile"):
            raise ConfigError(f"assign is split, interleave, random or tile; found {self.assign!r}")
        if self.granularity not in ("row", "batch"):
            raise ConfigError(f"granularity is 'row' or 'batch', found {self.granularity!r}")
        if self.kl not in self.rules:
            raise ConfigError(f"kl is one of {', '.join(self.rules)}; found {self.kl!r}")

    @property
    def index_members(self) -> int:
        """The members."""
        return self.members

    @property
    def default_samples(self) -> int:
        """As for every method, and no fewer than the members."""
        return max(super().default_samples, self.members)

    @property
    def repeats(self) -> int:
        """Copies of the batch that the objective makes: one a member under `tile`."""
        return self.members if self.assign == "tile" else 1

    def training_plan(self, rows: int, samples: int = 1, step: int | None = None) -> Plan:
        """One draw a row, or a block of rows, of the member that it is assigned to."""
        component = self._blocks(rows // samples, samples, step)
        if component is not None:
            return Plan(groups=len(component), component=component)
        component = assigned(self.assign, rows, self.members, samples=samples, step=step)
        return Plan(groups=samples, per_row=True, component=component)

    def _blocks(self, batch: int, samples: int, step: int | None) -> Tensor | None:
        """The member of every block of rows, where there are equal blocks to draw for."""
        if self.granularity == "row":
            return None
        if self.assign == "tile" and samples % self.members == 0:
            return torch.arange(samples) // (samples // self.members)
        even = batch >= self.members and batch % self.members == 0
        return blocks(self.members, samples, step) if even and self.assign == "split" else None

    def prediction_plan(self, samples: Sequence[int], noise: NoiseSource) -> Plan:
        """Sample t uses member t mod K."""
        return prediction_by_member(self.members, samples, noise)

    def reduce_kl(self, terms: Tensor, part: int = 0) -> Tensor:  # noqa: ARG002
        """From the terms of the members to one number."""
        if self.kl == "pairwise":
            return reduce_pairwise(terms)
        return terms.sum() if self.kl == "sum" else terms.mean()
