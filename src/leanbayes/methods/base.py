"""What a method is: a frozen configuration that fills the slots of layers and plans the passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any, ClassVar, Literal, Self

from torch import Tensor, nn

from leanbayes.errors import ConfigError
from leanbayes.noise import NoiseSource
from leanbayes.plan import Plan
from leanbayes.posteriors.base import Posterior
from leanbayes.select import Selector, Site, everything

KLKind = Literal["exact", "bound", "cross_entropy", "none"]


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Base of all methods. A subclass names itself: `class MyMethod(Method, name="my_method")`.

    Attributes:
        select: The layers it acts on.
        name: The word for it in `lb.methods()`, on the command line and in checkpoints.
        paper: Where it comes from.
        cost: Price in parameters and passes, in words.
        advice: When to use it.
        kl_kind: What `model.kl()` is.
        looks_at_data: It chooses what to convert by data or scores.
        trains_as_point: It trains as the point estimate and is fitted afterwards.
        collects: That fit is a training in itself.
    """

    name: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    cost: ClassVar[str] = ""
    advice: ClassVar[str] = ""
    kl_kind: ClassVar[KLKind] = "none"
    looks_at_data: ClassVar[bool] = False
    trains_as_point: ClassVar[bool] = False
    collects: ClassVar[bool] = False

    select: Selector = everything

    def __init_subclass__(cls, *, name: str = "", **kwargs: Any) -> None:
        """Register the subclass under its name."""
        super().__init_subclass__(**kwargs)
        for other in _subclasses(Method):  # type: ignore[type-abstract]
            if name and other.name == name and other.__qualname__ != cls.__qualname__:
                raise ConfigError(f"the name '{name}' is taken by {other.__qualname__}")
        cls.name = name

    @abstractmethod
    def slots(self, site: Site) -> dict[str, Posterior]:
        """Posteriors for the tensors of one layer; empty where it stays as it is."""

    def check_slots(  # noqa: B027
        self, sites: Sequence[Site], slots: Mapping[str, Mapping[str, Posterior]]
    ) -> None:
        """Raise where a part of the method found nothing to act on; `slots` by layer name."""

    def restored(self, site: Site, tensors: Mapping[str, Tensor]) -> dict[str, Posterior]:  # noqa: ARG002
        """Posteriors to be filled from a checkpoint; a mask would be read from its tensors."""
        return self.slots(site)

    @property
    def members(self) -> int:
        """Members or copies that the method keeps; 0 where it keeps none."""
        return 0

    @property
    def index_members(self) -> int:
        """Members under one index for the whole network; 0 where there is no such index."""
        return 0

    @property
    def distinct_draws(self) -> int:
        """Draws of a prediction after which they repeat: members that are points; 0 if none do."""
        return 0

    @property
    def default_samples(self) -> int:
        """Draws that a prediction averages unless told otherwise: those that differ, or 20."""
        return self.distinct_draws or 20

    @property
    def enumerates_output(self) -> bool:
        """True where a prediction averages over all copies of the output layer exactly."""
        return False

    @property
    def linearised(self) -> bool:
        """True where draws act on the linearisation of the network, not on the network."""
        return False

    @property
    def repeats(self) -> int:
        """Copies of the batch that the objective makes, besides `samples`."""
        return 1

    @property
    def is_random(self) -> bool:
        """False where every draw is the same network."""
        return True

    @property
    def converts(self) -> bool:
        """False where no layer is expected to be converted."""
        return True

    @property
    def silences_dropout(self) -> bool:
        """True where conversion sets the rate of the network's own dropout layers to 0."""
        return False

    @property
    def takes_dropout(self) -> bool:
        """True where the network's own dropout layers are among the layers it acts on."""
        return False

    def prepared(
        self,
        net: nn.Module,  # noqa: ARG002
        sites: Sequence[Site],  # noqa: ARG002
        *,
        data: Iterable[Any] | None = None,
        likelihood: nn.Module | None = None,  # noqa: ARG002
        scores: Mapping[str, Tensor] | None = None,
    ) -> Method:
        """The method as it acts on this network; methods that look at data override it."""
        if data is not None or scores is not None:
            raise ConfigError(f"{self.name} chooses its layers without data or scores")
        return self

    def training_plan(self, rows: int, samples: int = 1, step: int | None = None) -> Plan:  # noqa: ARG002
        """How `model(x)` samples in training; `rows` counts the `samples` repetitions."""
        return Plan(groups=samples, per_row=True)

    def prediction_plan(self, samples: Sequence[int], noise: NoiseSource) -> Plan:
        """How the given samples are drawn: one group each."""
        return Plan(groups=len(samples), noise=noise)

    def reduce_kl(self, terms: Tensor, part: int = 0) -> Tensor:  # noqa: ARG002
        """From the terms of the members to one number; `part` counts the parts of a composition."""
        return terms.mean()

    def fit(
        self,
        model: Any,  # noqa: ARG002
        loader: Iterable[Any],  # noqa: ARG002
        likelihood: Any,  # noqa: ARG002
        **options: Any,  # noqa: ARG002
    ) -> dict[str, float]:
        """What `lb.fit_posterior` does with a BayesianModel; most methods have nothing to fit."""
        raise self._nothing_to_fit()

    def check_fit(self, **options: Any) -> None:  # noqa: ARG002
        """Raise what `fit` would say of its options, before a training is spent on them."""
        raise self._nothing_to_fit()

    def unfitted(self, model: Any) -> str | None:  # noqa: ARG002
        """What to say where draws mean nothing before `fit`; None where they mean something."""
        return None

    def _nothing_to_fit(self) -> ConfigError:
        fitted = [f"lb.{cls.__name__}" for cls in methods().values() if cls.trains_as_point]
        return ConfigError(
            f"{self.name} learns its posterior in training (lb.objective); fit_posterior is for "
            f"{', '.join(sorted(fitted))}"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data: the name and every field."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {k: v.to_json() if isinstance(v, Selector) else v for k, v in values.items()}
        return {"name": self.name, "fields": plain}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise ConfigError(f"{cls.name} has no fields {unknown}; expected {sorted(known)}")
        values = {k: _plain(v, k == "select") for k, v in data.items()}
        return cls(**values)


def _plain(value: Any, is_selector: bool = False) -> Any:
    if is_selector or (isinstance(value, Mapping) and value.keys() == {"op", "args"}):
        return Selector.from_json(value)
    return tuple(value) if isinstance(value, list) else value


def _subclasses(cls: type[Method]) -> list[type[Method]]:
    return [s for child in cls.__subclasses__() for s in (child, *_subclasses(child))]


def checked_method(method: Any) -> Method:
    """The method, or an error that says what to write for its name or its class."""
    if isinstance(method, Method):
        checked_selector(method.select)
        return method
    kind = methods().get(method) if isinstance(method, str) else method
    known = isinstance(kind, type) and issubclass(kind, Method)
    found = f"the class {method.__name__}" if isinstance(method, type) else shortened(method)
    write = f"lb.{kind.__name__}()" if known else "lb.MeanField(), or another of lb.methods()"  # type: ignore[union-attr]
    raise ConfigError(f"expected a method with its settings, found {found}. Write {write}")


def checked_selector(select: Any, where: str = "select=") -> Selector:
    """The selector; the name or the class of a layer is refused, since functions make them."""
    if isinstance(select, Selector):
        return select
    found, write = repr(select), "lb.select.output"
    if isinstance(select, str):
        write = f"lb.select.by_name({select!r})"
    elif isinstance(select, type):
        found, write = f"the class {select.__name__}", f"lb.select.by_type({select.__name__!r})"
    raise ConfigError(f"{where} takes a selector of layers, found {found}. Write {write}")


def shortened(value: Any) -> str:
    """A value in an error: whole where it is short, else its class."""
    text = "" if isinstance(value, (Tensor, tuple, list, dict)) else repr(value)
    return text if 0 < len(text) <= 80 else f"a {type(value).__name__}"


def methods() -> dict[str, type[Method]]:
    """Every method by name: the library's own and those of installed packages.

    Example:
        >>> import leanbayes as lb
        >>> lb.methods()["mean_field"].__name__
        'MeanField'
    """
    for entry in entry_points(group="leanbayes.methods"):
        entry.load()
    return {cls.name: cls for cls in _subclasses(Method) if cls.name}  # type: ignore[type-abstract]


def method_named(name: str) -> type[Method]:
    """Look a method up; an unknown name offers the nearest ones."""
    known = methods()
    if name not in known:
        near = get_close_matches(name, known, n=3, cutoff=0.4) or sorted(known)
        raise ConfigError(f"no method is called '{name}'; did you mean {' or '.join(near)}?")
    return known[name]
