"""Which layers a method acts on: predicates on layers that combine with `|`, `&` and `~`.

By kind: `linears`, `convs`, `norms`, `embeddings`, `attentions`, `recurrents`, `dropouts`. By
place: `stem` (the first layer that runs), `output` (the last). All or none: `everything`,
`nothing`. By name or type:

    lb.select.norms | lb.select.output
    lb.select.by_name("layer4.*") & ~lb.select.by_type("BatchNorm2d")
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from leanbayes.errors import ConfigError
from leanbayes.layers.base import Host


@dataclass(frozen=True)
class Site:
    """A layer that could be converted.

    Attributes:
        name: Its first name in the network; empty for a bare root layer.
        layer: The stock layer.
        host: The host class it would take.
        first: It is the stem: the first layer that runs.
        last: It is the output: the last layer that runs.
    """

    name: str
    layer: nn.Module
    host: type[Host]
    first: bool = False
    last: bool = False

    @property
    def tensors(self) -> dict[str, nn.Parameter]:
        """The parameters that may become random, by slot name."""
        return self.host.tensors(self.layer)

    @property
    def depthwise(self) -> bool:
        """True for a convolution that takes every channel by itself."""
        groups = getattr(self.layer, "groups", 1)
        return groups > 1 and groups == getattr(self.layer, "in_channels", 0)

    @property
    def fixed_row(self) -> int | None:
        """A row of the weight that never is random."""
        return self.host.fixed_row(self.layer)


@dataclass(frozen=True)
class Selector:
    """A predicate on layers; `op` names it, `args` are names, patterns or other selectors."""

    op: str
    args: tuple[Any, ...] = ()

    def __call__(self, site: Site) -> bool:
        """True where the layer is selected."""
        return bool(_RULES[self.op](site, self.args))

    def __or__(self, other: Selector) -> Selector:
        return Selector("or", (self, other))

    def __and__(self, other: Selector) -> Selector:
        return Selector("and", (self, other))

    def __invert__(self) -> Selector:
        return Selector("not", (self,))

    def __str__(self) -> str:
        words = [str(arg) for arg in self.args]
        match self.op:
            case "or" | "and":
                return f"({f' {self.op} '.join(words)})"
            case "not":
                return f"not {words[0]}"
            case _:
                return self.op + (f"({', '.join(words)})" if words else "")

    def to_json(self) -> dict[str, Any]:
        """Plain data, for checkpoints and configs."""
        args = [arg.to_json() if isinstance(arg, Selector) else arg for arg in self.args]
        return {"op": self.op, "args": args}

    @staticmethod
    def from_json(data: Any) -> Selector:
        """The inverse of `to_json`."""
        if not isinstance(data, Mapping) or data.get("op") not in _RULES:
            raise ConfigError(f"not a selector: {data!r}; expected an op among {sorted(_RULES)}")
        args = (Selector.from_json(a) if isinstance(a, Mapping) else a for a in data["args"])
        return Selector(data["op"], tuple(args))


def _is_type(site: Site, names: tuple[Any, ...]) -> bool:
    return any(cls.__name__ in names for cls in type(site.layer).__mro__)


def _is_named(site: Site, patterns: tuple[Any, ...]) -> bool:
    return any(fnmatch.fnmatchcase(site.name, p) or site.name.endswith(f".{p}") for p in patterns)


_RULES: Mapping[str, Any] = {
    "everything": lambda _site, _args: True,
    "nothing": lambda _site, _args: False,
    "output": lambda site, _args: site.last,
    "stem": lambda site, _args: site.first,
    "kind": lambda site, kinds: site.host.kind in kinds,
    "type": _is_type,
    "name": _is_named,
    "or": lambda site, args: any(arg(site) for arg in args),
    "and": lambda site, args: all(arg(site) for arg in args),
    "not": lambda site, args: not args[0](site),
}

everything = Selector("everything")
nothing = Selector("nothing")
output = Selector("output")
stem = Selector("stem")
norms = Selector("kind", ("norm",))
linears = Selector("kind", ("linear",))
convs = Selector("kind", ("conv",))
embeddings = Selector("kind", ("embedding",))
attentions = Selector("kind", ("attention",))
dropouts = Selector("kind", ("dropout",))
recurrents = Selector("kind", ("recurrent",))


def by_type(*types: type[nn.Module] | str) -> Selector:
    """Layers of these types or of their subclasses.

    Example:
        >>> from torch import nn
        >>> str(by_type(nn.Linear))
        'type(Linear)'
    """
    return Selector("type", tuple(t if isinstance(t, str) else t.__name__ for t in types))


def by_name(*patterns: str) -> Selector:
    """Layers whose full name matches a shell pattern, or ends in `.pattern` to the letter.

    Example:
        >>> str(by_name("layer4.*", "fc"))
        'name(layer4.*, fc)'
    """
    return Selector("name", patterns)
