"""Different methods on different layers of one network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from leanbayes.errors import ConfigError
from leanbayes.layers.dropout import DropoutHost
from leanbayes.methods.base import KLKind, Method, checked_selector, method_named, shortened
from leanbayes.noise import NoiseSource
from leanbayes.plan import MEAN, Plan
from leanbayes.posteriors import Posterior
from leanbayes.select import Selector, Site

# From the sharpest statement that a KL can make to the weakest.
KINDS: tuple[KLKind, ...] = ("none", "exact", "bound", "cross_entropy")


@dataclass(frozen=True, kw_only=True)
class Compose(Method, name="compose"):
    """Several methods, each on the layers that its selector picks.

    Layers that no selector picks stay as they are; a layer that two pick is an error. Methods with
    one member index for the whole network have equally many members and share the index. The KL is
    the sum over the parts.

    Cost: that of the parts.

    Attributes:
        parts: Pairs of selector and method.

    Example:
        >>> import leanbayes as lb
        >>> method = lb.Compose(
        ...     [
        ...         (lb.select.norms, lb.Patching(where="norm")),
        ...         (lb.select.convs, lb.RankOne()),
        ...         (lb.select.output, lb.MeanField()),
        ...     ]
        ... )
        >>> method.index_members
        4
    """

    paper: ClassVar[str] = "-"
    cost: ClassVar[str] = "the sum of its parts"
    advice: ClassVar[str] = (
        "different methods on different layers, such as random norms and a random head"
    )

    parts: Sequence[tuple[Selector, Method]] = field(default=(), kw_only=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(_flat(self.parts)))
        if not self.parts:
            raise ConfigError(
                "Compose needs parts: lb.Compose([(lb.select.norms, lb.Patching()), ...])"
            )
        self._check_index()

    def _check_index(self) -> None:
        sizes = {m.index_members for _, m in self.parts if m.index_members}
        if len(sizes) > 1:
            raise ConfigError(
                f"parts share one member index, so they have equally many members; found {sizes}"
            )
        found = (getattr(m, "assign", None) for _, m in self.parts if m.index_members)
        rules = {str(rule) for rule in found if rule is not None}
        if len(rules) > 1:
            raise ConfigError(
                f"parts under one member index share one `assign`; found {sorted(rules)}"
            )

    @property
    def kl_kind(self) -> KLKind:  # type: ignore[override]
        """The weakest statement among the parts."""
        return max((m.kl_kind for _, m in self.parts), key=KINDS.index)

    @property
    def index_members(self) -> int:
        """The members that the parts share."""
        return max(m.index_members for _, m in self.parts)

    @property
    def members(self) -> int:
        """The largest number of members among the parts."""
        return max(m.members for _, m in self.parts)

    @property
    def repeats(self) -> int:
        """Copies of the batch that the objective makes."""
        return max(m.repeats for _, m in self.parts)

    @property
    def distinct_draws(self) -> int:
        """As many as the parts have in common; 0 where a part draws anew."""
        found = [m.distinct_draws for _, m in self.parts if m.is_random]
        return math.lcm(*found) if found else 0

    @property
    def default_samples(self) -> int:
        """What the most demanding part needs."""
        return max(m.default_samples for _, m in self.parts)

    @property
    def enumerates_output(self) -> bool:
        """True where a part does."""
        return any(m.enumerates_output for _, m in self.parts)

    @property
    def is_random(self) -> bool:
        """True where a part is."""
        return any(m.is_random for _, m in self.parts)

    @property
    def takes_dropout(self) -> bool:
        """True where a part does; of the others such a layer is none."""
        return any(m.takes_dropout for _, m in self.parts)

    @property
    def silences_dropout(self) -> bool:
        """True where a part does."""
        return any(m.silences_dropout for _, m in self.parts)

    def part_of(self, site: Site) -> int | None:
        """Which part acts on a layer; an error where several do."""
        if not self.select(site):
            return None
        own = issubclass(site.host, DropoutHost)  # the network's own, for methods that take it
        able = [i for i, (_, m) in enumerate(self.parts) if m.takes_dropout or not own]
        found = [i for i in able if self.parts[i][0](site) and self.parts[i][1].select(site)]
        if len(found) > 1:
            selectors = " and ".join(str(self.parts[i][0]) for i in found)
            raise ConfigError(
                f"parts of Compose overlap: {selectors} both pick '{site.name}'. Take it out of "
                "one: selector & ~other"
            )
        return found[0] if found else None

    def prepared(
        self,
        net: nn.Module,
        sites: Sequence[Site],
        *,
        data: Iterable[Any] | None = None,
        likelihood: nn.Module | None = None,
        scores: Mapping[str, Tensor] | None = None,
    ) -> Method:
        """Every part prepared on its own layers; data go to the parts that look at them."""
        if not any(m.looks_at_data for _, m in self.parts):
            super().prepared(net, sites, data=data, scores=scores)
        owned = [[s for s in sites if self.part_of(s) == i] for i in range(len(self.parts))]
        parts = []
        for (selector, method), own in zip(self.parts, owned, strict=True):
            if not own:
                raise ConfigError(f"{method.name} in Compose picks no layer: {selector}")
            looks = method.looks_at_data
            settled = method.prepared(
                net,
                own,
                data=data if looks else None,
                likelihood=likelihood,
                scores=scores if looks else None,
            )
            parts.append((selector, settled))
        return replace(self, parts=tuple(parts))

    def slots(self, site: Site) -> dict[str, Posterior]:
        """What the layer's own part puts there."""
        index = self.part_of(site)
        return {} if index is None else self._marked(index, self.parts[index][1].slots(site))

    def check_slots(
        self, sites: Sequence[Site], slots: Mapping[str, Mapping[str, Posterior]]
    ) -> None:
        """Raise where a part found no layer that it can act on, or two took one tied tensor."""
        self._check_tied(sites, slots)
        filled = {self.part_of(site) for site in sites if slots.get(site.name)}
        for index, (selector, method) in enumerate(self.parts):
            if method.converts and index not in filled:
                raise ConfigError(
                    f"{method.name} in Compose cannot act on the layers that {selector} picks: "
                    "give them to another method, or leave the part out"
                )

    def _check_tied(
        self, sites: Sequence[Site], slots: Mapping[str, Mapping[str, Posterior]]
    ) -> None:
        """A tensor has one posterior, under whatever names it is tied."""
        owners: dict[int, tuple[str, int | None]] = {}
        for site in sites:
            for slot, tensor in site.tensors.items():
                if slot not in slots.get(site.name, {}):
                    continue
                name, part = owners.setdefault(id(tensor), (site.name, self.part_of(site)))
                if part != self.part_of(site):
                    raise ConfigError(
                        f"parts of Compose overlap: '{name}' and '{site.name}' share their {slot}, "
                        "and two parts pick it. Leave one of the layers out of its part"
                    )

    def restored(self, site: Site, tensors: Mapping[str, Tensor]) -> dict[str, Posterior]:
        """What the layer's own part reads from a checkpoint."""
        index = self.part_of(site)
        if index is None:
            return {}
        return self._marked(index, self.parts[index][1].restored(site, tensors))

    def _marked(self, index: int, filled: dict[str, Posterior]) -> dict[str, Posterior]:
        rules = [getattr(method, "kl", None) for _, method in self.parts]
        # Pairwise bounds count the entropy of the index: parts that share it are one bound (T2.4).
        mark = rules.index("pairwise") if rules[index] == "pairwise" else index
        for posterior in filled.values():
            posterior.composed = mark
        return filled

    def training_plan(self, rows: int, samples: int = 1, step: int | None = None) -> Plan:
        """The parts' plans in one: slots of granularity `batch` draw once a group all the same."""
        plans = [m.training_plan(rows, samples, step) for _, m in self.parts]
        plans = [plan for plan in plans if not plan.mean]  # a part without noise says nothing
        if not plans:
            return MEAN
        component = _finest([p.component for p in plans if p.component is not None])
        groups = [plan.groups for plan in plans]
        if all(count == groups[0] for count in groups):
            per_row = any(plan.per_row for plan in plans)
            return Plan(groups=groups[0], per_row=per_row, component=component)
        if any(p.groups != samples for p in plans if p.component is None) or component is None:
            raise ConfigError(
                f"the parts of Compose draw for different blocks of rows ({sorted(set(groups))} a "
                "batch); leave `groups` out of their settings"
            )
        # Members of blocks beside draws of the whole batch: by row, with the same members.
        component = component.repeat_interleave(rows // len(component))
        return Plan(groups=samples, per_row=True, component=component)

    def prediction_plan(self, samples: Sequence[int], noise: NoiseSource) -> Plan:
        """Keyed draws of every part; sample t uses member t mod K where there is an index."""
        indexed = [m for _, m in self.parts if m.index_members]
        drawing = indexed or [m for _, m in self.parts if m.is_random]
        return drawing[0].prediction_plan(samples, noise) if drawing else MEAN

    def reduce_kl(self, terms: Tensor, part: int = 0) -> Tensor:
        """As the part reduces its own terms."""
        return self.parts[part][1].reduce_kl(terms)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        parts = [[selector.to_json(), method.to_json()] for selector, method in self.parts]
        return {"name": self.name, "fields": {"select": self.select.to_json(), "parts": parts}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        parts = [
            (Selector.from_json(s), method_named(m["name"]).from_json(m["fields"]))
            for s, m in data["parts"]
        ]
        return cls(tuple(parts), select=Selector.from_json(data["select"]))


def _finest(components: list[Tensor]) -> Tensor | None:
    """The components that tell most rows apart; a loop, for a graph knows no `max` by key."""
    finest = None
    for component in components:
        if finest is None or len(component) > len(finest):
            finest = component
    return finest


def _flat(parts: Iterable[Any]) -> Iterator[tuple[Selector, Method]]:
    """Checked parts; those of a composition inside a composition are parts like the others."""
    for part in parts:
        pair = part if isinstance(part, (tuple, list)) and len(part) == 2 else (None, None)
        given, method = pair
        if not isinstance(method, Method):
            raise ConfigError(
                f"a part is (selector, method); found {shortened(part)}. Write lb.Compose("
                "[(lb.select.norms, lb.Patching()), (lb.select.output, lb.MeanField())])"
            )
        selector = checked_selector(given, "a part of Compose")
        if method.trains_as_point:
            raise ConfigError(
                f"{method.name} is fitted after training and cannot be a part of Compose"
            )
        if isinstance(method, Compose):
            yield from ((selector & method.select & s, m) for s, m in method.parts)
        else:
            yield selector, method
