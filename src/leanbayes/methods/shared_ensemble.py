"""BayesAdapter's parameter-sharing ensemble (PSE): candidates that share the trained weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from leanbayes.counts import checked_count
from leanbayes.errors import ConfigError
from leanbayes.methods.assignment import Assign, even_blocks, in_turn
from leanbayes.methods.base import KLKind
from leanbayes.methods.mixture import MixtureMethod
from leanbayes.methods.preset import Preset, settled
from leanbayes.methods.prior import check_not_negative, resolve_prior_std
from leanbayes.plan import Plan
from leanbayes.posteriors import Posterior
from leanbayes.posteriors.low_rank import LowRankScale
from leanbayes.select import Site

PRESETS = {"init_std": (0.1, 0.2)}


@dataclass(frozen=True, kw_only=True)
class SharedEnsemble(MixtureMethod, name="shared_ensemble"):
    """An ensemble whose members share the weights W: `W_k = (L_k R_k) * W`, factors of low rank.

    The posterior is the uniform mixture of the members (candidates). An example trains one of them,
    the same in all layers. The right factor of a convolution has an entry
    for every (channel, kernel position), which is what the paper's parameter counts need. The KL of
    points is infinite; what remains is the cross-entropy `mean_k |A_k * W|^2 / (2 prior_std^2)`,
    whose gradients `lb.attach_kl` adds in closed form (eq. 6 of the paper has the sign of a
    maximiser). Biases and norms stay shared points.

    Deng et al., BayesAdapter, 2022. The paper says that new parameters start 'randomly'; its code
    centres them so that the product is 1 +- init_std.

    Cost: `members * rank * (O + I k k)` parameters a layer: 6 % of a ResNet-50 at 20 members. A
    step costs about 2x with factors by kernel position (one convolution a candidate), 1.2x with
    `per_channel` (1.6x on an H200 in bf16), r times as much at rank r; with `groups` one
    product whatever the rank, if a block has at least 8 rows. A prediction costs 1.1x by draw.

    Attributes:
        members: Candidates. Each is trained by its share of the rows: take fewer if there are few
            steps.
        rank: Rank of the factors.
        per_channel: One right entry a channel instead of one a kernel position.
        groups: Candidates a batch (at most; the largest number that divides the rows), each for a
            block of rows. None draws one a row: less variance, more work.
        init_std: Standard deviation of the entries of L R at the start (paper: 0.2 on CIFAR-10).
        prior_std: Scale of the prior, or `weight_decay` with `num_data`.
        weight_decay: The weight decay of pre-training.
        num_data: Number of training examples, for `weight_decay`.
        preset: `recommended` or `paper`.
    """

    paper: ClassVar[str] = "Deng et al. 2022, BayesAdapter"
    cost: ClassVar[str] = (
        "+6 % parameters (ResNet-50, 20 members); training step 2x, 1.2x with "
        "per_channel=True; 1.1x a draw"
    )
    advice: ClassVar[str] = (
        "the calibration of an ensemble from one trained network, for a few "
        "per cent more parameters"
    )
    kl_kind: ClassVar[KLKind] = "cross_entropy"

    members: int = 20
    rank: int = 1
    per_channel: bool = False
    groups: int | None = None
    init_std: float | None = None
    prior_std: float | None = None
    weight_decay: float | None = None
    num_data: int | None = None
    assign: Assign = "random"
    preset: Preset = "recommended"

    def __post_init__(self) -> None:
        init_std = settled(self.init_std, "init_std", self.preset, PRESETS)
        object.__setattr__(self, "init_std", init_std)
        self.check()
        check_not_negative(init_std=self.init_std)
        object.__setattr__(self, "rank", checked_count("rank", self.rank))
        self._settle_groups()
        resolve_prior_std(self.prior_std, self.weight_decay, self.num_data)

    def _settle_groups(self) -> None:
        if self.groups is None:
            return
        object.__setattr__(self, "groups", checked_count("groups", self.groups))
        if self.assign != "random":
            raise ConfigError(
                f"groups draws the candidates of blocks at random; found assign={self.assign!r}: "
                "leave one of the two out"
            )

    def training_plan(self, rows: int, samples: int = 1, step: int | None = None) -> Plan:
        """One candidate a row, or one a block of rows."""
        if self.groups is None:
            return super().training_plan(rows, samples, step)
        count = samples * even_blocks(self.groups, rows // samples)
        return Plan(groups=count, component=in_turn(self.members, count))

    @property
    def distinct_draws(self) -> int:
        """Every candidate once."""
        return self.members

    def slots(self, site: Site) -> dict[str, Posterior]:
        """Factors for the weights of linear, convolutional, attention and recurrent layers."""
        return {
            slot: LowRankScale(
                tensor,
                members=self.members,
                rank=self.rank,
                spread=self.init_std or 0.0,
                per_channel=self.per_channel,
                summed=self.kl == "sum",
                prior_std=resolve_prior_std(self.prior_std, self.weight_decay, self.num_data),
            )
            for slot, tensor in site.tensors.items()
            if site.host.kind in ("linear", "conv", "attention", "recurrent") and tensor.dim() > 1
        }
