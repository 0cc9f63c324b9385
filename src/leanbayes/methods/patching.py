"""EMP and ECMP: banks of norm and output layers; dropout and ensembles are settings of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch

from leanbayes.errors import ConfigError
from leanbayes.methods.assignment import assigned, check_members
from leanbayes.methods.base import KLKind, Method
from leanbayes.methods.prior import resolve_prior_std
from leanbayes.noise import NoiseSource
from leanbayes.plan import Granularity, Plan
from leanbayes.posteriors import Posterior
from leanbayes.posteriors.bank import Bank, IndexScope
from leanbayes.select import Selector, Site, everything, norms, output

PLACES: dict[str, Selector] = {
    "norm": norms,
    "output": output,
    "norm+output": norms | output,
    "all": everything,
}


@dataclass(frozen=True, kw_only=True)
class Patching(Method, name="patching"):
    """A bank of K copies of the tensors of a few layers; a pass picks one copy of each.

    EMP (`scope="layer"`) draws one index a layer, the same for its weight and bias: K^layers
    networks. ECMP (`scope="element"`, or `cross=True`) draws one an element. `scope="network"` is
    an explicit ensemble of these layers; with `zero_copy=True` and two members `scope="input"` is
    dropout and `scope="element"` DropConnect (Table 2 of the paper). The trained parameter is
    copy 0; copies that a pass does not pick get no gradient.

    Chen and Shyu, Ensemble model patching, 2019. Eq. 7 of the paper bounds an entropy the wrong way
    round; gradients are not affected. Its running mean divides by s + 1, so that probabilities sum
    to S / (S + 1); and every copy decays by lambda, where lambda / K is right (`lb.param_groups`).

    Cost: K - 1 copies of the patched layers (0.3 % of a ResNet-18 for norms, 18 % with the output);
    a step and a pass cost what the network costs.

    Attributes:
        members: Copies K, the trained one (and a zero copy) included.
        scope: What one index picks.
        cross: Short for `scope="element"`.
        zero_copy: The last copy is 0.
        keep: With a zero copy and two members: probability of the trained copy; uniform if None.
        where: `norm`, `output`, `norm+output`, `all`, or a selector.
        exact_output: Predictions average over all copies of the output layer exactly, on the same
            features, instead of drawing one; needs `scope="layer"` and an output bank.
        granularity: One index a `batch` (the paper) or a `row`.
        init_std: Relative spread of the copies at the start.
        prior_std: Scale of the prior in the cross-entropy.
    """

    paper: ClassVar[str] = "Chen and Shyu 2019, ensemble model patching"
    cost: ClassVar[str] = "+0.3 % (norms) to 18 % (with output) at 5 members; step and pass 1x"
    advice: ClassVar[str] = "many networks in one at the price of its norm layers"
    kl_kind: ClassVar[KLKind] = "cross_entropy"

    members: int = 5
    scope: IndexScope = "layer"
    cross: bool = False
    zero_copy: bool = False
    keep: float | None = None
    where: Literal["norm", "output", "norm+output", "all"] | Selector = "norm+output"
    exact_output: bool = False
    granularity: Granularity = "batch"
    init_std: float = 0.05
    prior_std: float = 1.0

    def __post_init__(self) -> None:
        check_members(self.members)
        resolve_prior_std(self.prior_std, None, None)
        if self.cross:
            object.__setattr__(self, "scope", "element")
        if self.scope not in get_args(IndexScope):
            known = ", ".join(get_args(IndexScope))
            raise ConfigError(f"scope is one of {known}; found {self.scope!r}")
        if self.exact_output and (self.scope != "layer" or self.keep is not None):
            raise ConfigError("exact_output needs scope='layer' with equally probable copies")
        if self.select == everything:
            object.__setattr__(self, "select", self.place)
        if self.zero_copy and self.members < 2:
            raise ConfigError("a zero copy needs members >= 2: the trained copy and the zero")
        if self.keep is not None and not (self.zero_copy and self.members == 2):
            raise ConfigError("keep is the probability of the trained copy beside one zero copy")

    @property
    def place(self) -> Selector:
        """The layers that `where` stands for."""
        if isinstance(self.where, Selector):
            return self.where
        if self.where not in PLACES:
            raise ConfigError(
                f"where is one of {', '.join(PLACES)} or a selector such as "
                f"lb.select.by_name('layer4.*'); found {self.where!r}"
            )
        return PLACES[self.where]

    @property
    def index_members(self) -> int:
        """The members, where one index picks for the whole network."""
        return self.members if self.scope == "network" else 0

    @property
    def enumerates_output(self) -> bool:
        """As set."""
        return self.exact_output

    def slots(self, site: Site) -> dict[str, Posterior]:
        """A bank for every tensor of a patched layer."""
        if not self.place(site):
            return {}
        return {
            slot: Bank(
                tensor,
                members=self.members,
                index=self.scope,
                zero_copy=self.zero_copy,
                keep=self.keep,
                jitter=self.init_std,
                prior_std=self.prior_std,
                granularity=self.granularity,
                input_dim=site.host.input_dim(site.layer),
            )
            for slot, tensor in site.tensors.items()
            if not (self.scope == "input" and tensor.dim() == 1)  # biases have no input units
        }

    def training_plan(self, rows: int, samples: int = 1, step: int | None = None) -> Plan:
        """One index a batch, or a row; under a network index members are assigned to rows."""
        per_row = self.granularity == "row"
        if self.scope != "network":
            return Plan(groups=samples, per_row=per_row)
        if per_row:
            component = assigned("split", rows, self.members, samples=samples, step=step)
            return Plan(groups=samples, per_row=True, component=component)
        return Plan(groups=samples, component=torch.randint(self.members, (samples,)))

    def prediction_plan(self, samples: Sequence[int], noise: NoiseSource) -> Plan:
        """Keyed indices; under a network index sample t uses copy t mod K."""
        if self.scope != "network":
            return Plan(groups=len(samples), noise=noise)
        component = torch.tensor([t % self.members for t in samples])
        return Plan(groups=len(samples), component=component, noise=noise)
