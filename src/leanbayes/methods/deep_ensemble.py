"""Deep ensembles: whole networks as the members of one model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from leanbayes.errors import ConfigError, ConversionError
from leanbayes.layers.statistics import Statistics
from leanbayes.methods.assignment import assigned, prediction_by_member, settle_members
from leanbayes.methods.base import Method
from leanbayes.noise import NoiseSource
from leanbayes.plan import Plan
from leanbayes.posteriors import Posterior
from leanbayes.posteriors.members import Members
from leanbayes.select import Site

ASSIGNMENTS = ("split", "interleave", "random", "turns")


@dataclass(frozen=True, kw_only=True)
class DeepEnsemble(Method, name="deep_ensemble"):
    """K networks, each with weights and BatchNorm statistics of its own; predictions are averaged.

    Member 0 keeps the weights of the network. The others are fresh: from `factory`, or drawn anew
    by the layers' own `reset_parameters`. They have to be trained: before that their predictions
    are almost uniform, which leaves a trained network its accuracy and takes its confidence (a
    ResNet-20 on CIFAR-10: 91.4 % of 91.5 %, NLL 1.37 instead of 0.38). Parameters of layers
    without a host are shared by all members.

    Lakshminarayanan et al., Simple and scalable predictive uncertainty, 2017. The prior is weight
    decay, the same for every member; the KL is 0. `lb.param_groups` gives a member the Kth part of
    it where rows are assigned to members, as it has the Kth part of the loss; in `turns` all of it.

    By `split` a member sees 1 / K of every batch, by `turns` one batch in K, as a network trained
    alone would: either way an epoch for every member takes K epochs. `lb.adapt(members="in_turn")`
    trains whole members one after another. Under DDP `turns` and `random` need
    find_unused_parameters=True.

    Cost: K times the parameters; a draw 1.2x the network's, a step that trains all of 4 members at
    once 1.5x.

    Attributes:
        members: Networks K.
        factory: Gives a fresh network of the same architecture, or its name ("package.module:name",
            the form in which checkpoints remember it; loading does not call it).
        assign: `split`, `interleave` or `random` rows of a batch to members, or whole batches in
            `turns` (by step; without one at random).
        init_std: None for fresh members; a number starts them as copies of the network, every
            entry times N(1, init_std^2).

    Example:
        >>> import leanbayes as lb, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.DeepEnsemble(members=3))
        >>> model.report.base, model.report.added
        (15, 30)
    """

    paper: ClassVar[str] = "Lakshminarayanan et al. 2017, deep ensembles"
    cost: ClassVar[str] = "K x the parameters and K trainings; 1.2x a draw"
    advice: ClassVar[str] = "the yardstick, if K trainings can be paid"

    members: int = 5
    factory: Callable[[], nn.Module] | str | None = None
    assign: str = "split"
    init_std: float | None = None

    # Layers of fresh networks by name, while a conversion is under way.
    _fresh: ClassVar[dict[str, list[nn.Module]] | None] = None

    def __post_init__(self) -> None:
        settle_members(self)
        if self.assign not in ASSIGNMENTS:
            raise ConfigError(f"assign is one of {', '.join(ASSIGNMENTS)}; found {self.assign!r}")
        if self.init_std is not None and self.init_std < 0:
            raise ConfigError(f"init_std must be None or at least 0, found {self.init_std!r}")
        if self.init_std is not None and self.factory is not None:
            raise ConfigError("members start fresh (factory) or as copies (init_std): give one")

    @property
    def index_members(self) -> int:
        """The members."""
        return self.members

    @property
    def distinct_draws(self) -> int:
        """Every member once."""
        return self.members

    @property
    def is_random(self) -> bool:
        """A single member is a network."""
        return self.members > 1

    def prepared(
        self,
        net: nn.Module,
        sites: Sequence[Site],
        *,
        data: Iterable[Any] | None = None,
        likelihood: nn.Module | None = None,
        scores: Mapping[str, Tensor] | None = None,
    ) -> Method:
        """Call the factory once for every further member."""
        super().prepared(net, sites, data=data, likelihood=likelihood, scores=scores)
        if self.factory is None:
            return self
        nets = [called(self.factory) for _ in range(1, self.members)]
        chosen = [site for site in sites if self.select(site)]
        fresh = {site.name: [_layer_of(other, site) for other in nets] for site in chosen}
        # A model must pickle, whatever its factory was.
        named = replace(self, factory=name_of(self.factory))
        object.__setattr__(named, "_fresh", fresh)
        return named

    def slots(self, site: Site) -> dict[str, Posterior]:
        """Members for every tensor; statistics by member where the layer has some."""
        if self._fresh is not None:
            return self._filled(site, self._fresh.pop(site.name))
        if self.init_std is not None:
            return self._filled(site, [_jittered(site, self.init_std) for _ in self._further])
        return self._filled(site, [_reset(site) for _ in self._further])

    def restored(self, site: Site, tensors: Mapping[str, Tensor]) -> dict[str, Posterior]:  # noqa: ARG002
        """Members to be filled: no factory is needed."""
        return self._filled(site, [_jittered(site, 0.0) for _ in self._further])

    def _filled(self, site: Site, layers: Sequence[nn.Module]) -> dict[str, Posterior]:
        """Posteriors of which the given layers are the further members."""
        # Rows of a batch that are split over members have their gradients split, too.
        return _slots(site, layers, copies=1 if self.assign == "turns" else self.members)

    @property
    def _further(self) -> range:
        return range(1, self.members)

    def training_plan(self, rows: int, samples: int = 1, step: int | None = None) -> Plan:
        """Rows to members, or the whole batch to one of them."""
        if self.assign != "turns":
            rule: Any = self.assign
            component = assigned(rule, rows, self.members, samples=samples, step=step)
            return Plan(groups=samples, per_row=True, component=component)
        turn = torch.randint(self.members, ()) if step is None else torch.tensor(step)
        return Plan(groups=samples, component=(turn % self.members).repeat(samples))

    def prediction_plan(self, samples: Sequence[int], noise: NoiseSource) -> Plan:
        """Sample t uses member t mod K."""
        return prediction_by_member(self.members, samples, noise)

    def to_json(self) -> dict[str, Any]:
        """Plain data; a factory by its name, and dropped where it has none."""
        data = super().to_json()
        data["fields"]["factory"] = name_of(self.factory)
        return data


def called(factory: Callable[[], nn.Module] | str) -> nn.Module:
    """A fresh network."""
    if isinstance(factory, str):
        module, _, name = factory.partition(":")
        if not name:
            raise ConfigError(f"a factory is named as 'package.module:name'; found {factory!r}")
        try:
            factory = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"no factory {module}:{name}: {error}") from error
    net = factory()  # type: ignore[operator]
    if not isinstance(net, nn.Module):
        raise ConfigError(f"the factory must give a network, found {type(net).__name__}")
    return net


def name_of(factory: Callable[[], nn.Module] | str | None) -> str | None:
    """`package.module:name` of a factory; None where it cannot be imported."""
    if factory is None or isinstance(factory, str):
        return factory
    name = getattr(factory, "__qualname__", "<")
    return None if "<" in name or "." in name else f"{factory.__module__}:{name}"


def _slots(site: Site, layers: Sequence[nn.Module], copies: int) -> dict[str, Posterior]:
    filled: dict[str, Posterior] = {}
    for slot, tensor in site.tensors.items():
        values = [getattr(layer, slot).detach().to(tensor).clone() for layer in layers]
        further = [nn.Parameter(value, tensor.requires_grad) for value in values]
        filled[slot] = Members(further, copies)
    if isinstance(site.layer, _BatchNorm):
        filled["statistics"] = Statistics([_as_norm(layer) for layer in layers])
    return filled


def _as_norm(layer: nn.Module) -> _BatchNorm:
    assert isinstance(layer, _BatchNorm)
    return layer


def _layer_of(net: nn.Module, site: Site) -> nn.Module:
    """The layer of a fresh network that stands where the site does."""
    layer = dict(net.named_modules()).get(site.name)
    shapes = {name: p.shape for name, p in site.tensors.items()}
    found = None if layer is None else {n: p.shape for n, p in site.host.tensors(layer).items()}
    if layer is None or type(layer) is not type(site.layer) or found != shapes:
        raise ConversionError(
            f"the factory gives another architecture: '{site.name}' is {site.layer} in the "
            f"network and {layer} in the factory's"
        )
    return layer.to(next(iter(site.tensors.values())).device) if shapes else layer


def _jittered(site: Site, std: float) -> nn.Module:
    other = copy.deepcopy(site.layer)
    with torch.no_grad():
        for parameter in other.parameters(recurse=False) if std else ():
            noise = 1 + std * torch.randn_like(parameter)
            if site.fixed_row is not None:
                noise[site.fixed_row] = 1
            parameter.mul_(noise)
    return other


def _reset(site: Site) -> nn.Module:
    """A copy of the layer with fresh parameters and statistics."""
    other = copy.deepcopy(site.layer)
    if not site.host.reinitialise(other):
        raise ConversionError(
            f"'{site.name}' ({type(site.layer).__name__}) has no reset_parameters, so its further "
            "members cannot be drawn: write DeepEnsemble(factory=make_net), or "
            "DeepEnsemble(init_std=0.05) for jittered copies"
        )
    if site.fixed_row is not None:  # torch makes it zero, and no member would ever learn it
        pairs = zip(other.parameters(recurse=False), site.layer.parameters(False), strict=True)
        with torch.no_grad():
            for fresh, given in pairs:
                fresh[site.fixed_row] = given[site.fixed_row]
    return other
