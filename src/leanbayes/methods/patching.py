"""EMP and ECMP: banks of norm and output layers; dropout and ensembles are settings of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch

from leanbayes.errors import ConfigError
from leanbayes.methods.assignment import assigned, prediction_by_member, settle_members
from leanbayes.methods.base import KLKind, Method
from leanbayes.methods.preset import Preset, settled
from leanbayes.methods.prior import check_not_negative, resolve_prior_std
from leanbayes.noise import NoiseSource
from leanbayes.plan import Granularity, Plan
from leanbayes.posteriors import Posterior
from leanbayes.posteriors.bank import Bank, IndexScope
from leanbayes.select import Selector, Site, everything, norms, output

PRESETS = {"init_std": (0.05, 0.1)}
PLACES: dict[str, Selector] = {
    "norm": norms,
    "output": output,
    "norm+output": norms | output,
    "all": everything,
}


@dataclass(frozen=True, kw_only=True)
class Patching(Method, name="patching"):
    """A few layers have K copies of their tensors (a bank), and every pass picks among them.

    EMP (`scope="layer"`) draws one index a layer, the same for its weight and bias: K^layers
    networks. ECMP (`scope="element"`, or `cross=True`) draws one an element. `scope="network"` is
    an explicit ensemble of these layers; with `zero_copy=True` and two members `scope="input"` is
    dropout and `scope="element"` DropConnect (Table 2 of the paper). The trained parameter is
    copy 0; copies that a pass does not pick get a gradient of 0, though momentum still moves them.

    Chen and Shyu, Ensemble model patching, 2019. Eq. 7 of the paper bounds an entropy the wrong way
    round; gradients are not affected. Its running mean divides by s + 1, so that probabilities sum
    to S / (S + 1); and every copy decays by lambda, where lambda / K is right (`lb.param_groups`).

    Cost: K - 1 copies of the patched layers (0.3 % of a ResNet-18 for norms, 18 % with the output);
    a step and a draw cost about 1.05x the network's.

    Attributes:
        members: Copies K, the trained one (and a zero copy) included.
        scope: What one index picks for: a `layer`, an `element`, an `input` unit or the `network`.
        cross: Short for `scope="element"`.
        zero_copy: The last copy is 0.
        keep: With a zero copy and two members: probability of the trained copy; uniform if None.
        where: `norm`, `output`, `norm+output`, `all`, or a selector.
        exact_output: Predictions average over all copies of the output layer exactly, on the same
            features, instead of drawing one; needs `scope="layer"` and an output bank.
        granularity: One index a `batch` (the paper) or a `row`.
        init_std: Relative spread of the copies at the start (the paper does not say; 0.1 harms a
            trained network).
        prior_std: Scale of the prior in the cross-entropy, which is a weight decay of
            `1 / (num_data K prior_std^2)` a copy: give `lb.param_groups` none beside it. 1 unless
            `weight_decay` is given.
        weight_decay: The weight decay of pre-training, to be read as a prior with `num_data`.
        num_data: Number of training examples, for `weight_decay`.
        preset: `recommended` or `paper`.
    """

    paper: ClassVar[str] = "Chen and Shyu 2019, ensemble model patching"
    cost: ClassVar[str] = (
        "+0.3 % parameters (norms) to 18 % (with the output layer) at 5 "
        "members; training step and draw 1.05x"
    )
    advice: ClassVar[str] = "many networks in one that differ in their norm and output layers only"
    kl_kind: ClassVar[KLKind] = "cross_entropy"

    members: int = 5
    scope: IndexScope = "layer"
    cross: bool = False
    zero_copy: bool = False
    keep: float | None = None
    where: Literal["norm", "output", "norm+output", "all"] | Selector = "norm+output"
    exact_output: bool = False
    granularity: Granularity = "batch"
    init_std: float | None = None
    prior_std: float | None = None
    weight_decay: float | None = None
    num_data: int | None = None
    preset: Preset = "recommended"

    def __post_init__(self) -> None:
        init_std = settled(self.init_std, "init_std", self.preset, PRESETS)
        object.__setattr__(self, "init_std", init_std)
        settle_members(self)
        self._settle_prior()
        check_not_negative(init_std=self.init_std)
        if self.granularity not in get_args(Granularity):
            raise ConfigError(f"granularity is 'row' or 'batch', found {self.granularity!r}")
        if self.cross and self.scope in ("layer", "element"):
            object.__setattr__(self, "scope", "element")
        self._check_scope()
        self._check_keep()
        if self.select == everything:
            object.__setattr__(self, "select", self.place)

    def _settle_prior(self) -> None:
        found = resolve_prior_std(self.prior_std, self.weight_decay, self.num_data)
        if self.weight_decay is None:
            object.__setattr__(self, "prior_std", found)

    def _check_scope(self) -> None:
        known = get_args(IndexScope)
        if self.scope not in known:
            raise ConfigError(f"scope is one of {', '.join(known)}; found {self.scope!r}")
        if self.cross and self.scope != "element":
            raise ConfigError(f"cross=True means scope='element'; found scope={self.scope!r}")
        if self.exact_output and (self.scope != "layer" or self.keep is not None):
            raise ConfigError("exact_output needs scope='layer' with equally probable copies")
        if self.zero_copy and self.members < 2:
            raise ConfigError("a zero copy needs members >= 2: the trained copy and the zero")

    def _check_keep(self) -> None:
        if self.keep is None:
            return
        if not (self.zero_copy and self.members == 2 and 0 <= self.keep <= 1):
            raise ConfigError(
                "keep is the probability of the trained copy beside one zero copy, from 0 to 1 "
                f"with members=2 and zero_copy=True; found {self.keep!r}"
            )
        if self.scope == "network":
            raise ConfigError(
                "keep needs an index that is drawn (scope='layer', 'input' or 'element'); under "
                "scope='network' samples take the copies in turn"
            )

    @property
    def place(self) -> Selector:
        """The layers that `where` stands for."""
        where: Any = self.where  # whatever was given
        if isinstance(where, Selector):
            return where
        if not isinstance(where, str) or where not in PLACES:
            raise ConfigError(
                f"where is one of {', '.join(PLACES)} or a selector such as "
                f"lb.select.by_name('layer4.*'); found {where!r}"
            )
        return PLACES[where]

    @property
    def index_members(self) -> int:
        """The members, where one index picks for the whole network."""
        return self.members if self.scope == "network" else 0

    @property
    def enumerates_output(self) -> bool:
        """As set."""
        return self.exact_output

    @property
    def distinct_draws(self) -> int:
        """The members, where one index picks for the whole network."""
        return self.index_members

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
                jitter=self.init_std or 0.0,
                prior_std=resolve_prior_std(self.prior_std, self.weight_decay, self.num_data),
                granularity=self.granularity,
                input_dim=site.host.input_dim(site.layer),
                input_groups=site.host.input_groups(site.layer),
                fixed_row=site.fixed_row,
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
        return prediction_by_member(self.members, samples, noise)
