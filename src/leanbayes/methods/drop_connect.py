"""DropConnect: weights that are dropped one by one, in training and in prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, get_args

from torch import Tensor

from leanbayes.errors import ConfigError
from leanbayes.methods.base import Method
from leanbayes.methods.mc_dropout import check_rate
from leanbayes.plan import Granularity, Plan
from leanbayes.posteriors import Posterior
from leanbayes.posteriors.bernoulli import DroppedWeight
from leanbayes.select import Selector, Site, everything


@dataclass(frozen=True, kw_only=True)
class DropConnect(Method, name="drop_connect"):
    """`W * z` with independent z = Bernoulli(1 - rate) / (1 - rate) for every entry of a weight.

    Biases and the affine maps of norm layers stay. The prior is weight decay, so the KL is 0.

    Wan et al., Regularization of neural networks using DropConnect, 2013; Mobiny et al. 2019 for
    prediction with it. It is `lb.Patching(members=2, zero_copy=True, cross=True)` up to the factor
    1 / (1 - rate), which keeps the expected value.

    Cost: no parameters; a draw of the weights a step or a sample. With `granularity="row"` a
    weight a row: as much memory as the batch has rows.

    Attributes:
        rate: Probability that a weight is dropped. The default keeps a trained network what it was.
        where: The layers whose weights are dropped.
        granularity: One draw a `batch`, or one a `row` of it.
    """

    paper: ClassVar[str] = "Wan et al. 2013, DropConnect; Mobiny et al. 2019"
    cost: ClassVar[str] = "nothing added; training step and draw 1.1x"
    advice: ClassVar[str] = (
        "dropout of weights, where a network has no place for dropout of activations"
    )

    rate: float = 0.01
    where: Selector = everything
    granularity: Granularity = "batch"

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if self.granularity not in get_args(Granularity):
            raise ConfigError(f"granularity is 'batch' or 'row'; found {self.granularity!r}")
        if not isinstance(self.where, Selector):
            raise ConfigError(f"where is a selector such as lb.select.convs; found {self.where!r}")

    def slots(self, site: Site) -> dict[str, Posterior]:
        """A law for every tensor of the chosen layers that is more than a vector."""
        return self.restored(site, {}) if self.where(site) else {}

    def restored(self, site: Site, tensors: Mapping[str, Tensor]) -> dict[str, Posterior]:  # noqa: ARG002
        """The same wherever the layer stands: which ones are dropped is in the checkpoint."""
        return {
            slot: DroppedWeight(self.rate, granularity=self.granularity, fixed_row=site.fixed_row)
            for slot, tensor in site.tensors.items()
            if tensor.dim() > 1
        }

    def training_plan(self, rows: int, samples: int = 1, step: int | None = None) -> Plan:  # noqa: ARG002
        """One draw a batch, or a row."""
        return Plan(groups=samples, per_row=self.granularity == "row")
