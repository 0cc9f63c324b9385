"""BatchEnsemble: members that share a weight up to point factors of rank 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from leanbayes.methods.assignment import Assign
from leanbayes.methods.mixture import MixtureMethod
from leanbayes.methods.prior import check_not_negative
from leanbayes.plan import Granularity
from leanbayes.posteriors import Posterior
from leanbayes.posteriors.bank import Bank
from leanbayes.posteriors.points import PointFactors
from leanbayes.select import Site


@dataclass(frozen=True, kw_only=True)
class BatchEnsemble(MixtureMethod, name="batch_ensemble"):
    """`y = (W (x * s_k)) * r_k + b_k` with points s_k, r_k, b_k: a rank-1 BNN without noise.

    Wen, Tran and Ba, BatchEnsemble, 2020. On a trained network the factors start at N(1, 0.05^2).

    Cost: `K (I + O)` parameters a layer; a step and a pass cost about 1.1x the network's.

    Attributes:
        members: Members K.
        init_std: Spread of the factors at the start.
        assign: `split`, `interleave` or `tile`.
    """

    paper: ClassVar[str] = "Wen et al. 2020, BatchEnsemble"
    cost: ClassVar[str] = "+0.8 % parameters at 4 members; training step 1.15x; 1.1x a draw"
    advice: ClassVar[str] = "a cheap ensemble; check lb.diversity, since its members can become one"

    members: int = 4
    init_std: float = 0.05
    assign: Assign = "split"
    granularity: Granularity = "batch"  # points are the same for all rows of a member

    def __post_init__(self) -> None:
        self.check()
        check_not_negative(init_std=self.init_std)

    @property
    def distinct_draws(self) -> int:
        """Every member once."""
        return self.members

    def slots(self, site: Site) -> dict[str, Posterior]:
        """Point factors on both sides of every product, and biases by member where there are."""
        sizes = site.host.factor_sizes(site.layer)
        if not sizes:
            return {}
        like = next(iter(site.tensors.values()))
        filled: dict[str, Posterior] = {
            slot: PointFactors(like, size, members=self.members, init_std=self.init_std)
            for slot, size in sizes.items()
            if not (slot == "in_scale" and site.depthwise)
        }
        for slot, tensor in site.tensors.items():
            if "bias" in slot:
                filled[slot] = Bank(
                    tensor, members=self.members, index="network", jitter=0.0, prior_std=None
                )
        return filled
