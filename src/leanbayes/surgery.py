"""Find the layers of any module that can become hosts, make them hosts, and turn them back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from leanbayes.errors import ConversionError
from leanbayes.layers import Host, host_of, stock_of
from leanbayes.layers.base import joint_class, original_class
from leanbayes.layers.deferring import defers
from leanbayes.plan import Scope
from leanbayes.posteriors.base import Posterior
from leanbayes.report import Skipped
from leanbayes.select import Site

PARAMETRISED = "has parametrisations, which own its weight"
WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel)
NO_PARAMETER = "its weight is no Parameter (weight_norm, pruning?)"
Slots = Mapping[str, dict[str, Posterior]]  # by layer name, then by tensor


@dataclass(frozen=True)
class Survey:
    """What is in a network: layers that could be converted, and what could not."""

    sites: tuple[Site, ...]
    skipped: tuple[Skipped, ...]

    def without(self, names: Collection[str], reason: str) -> Survey:
        """The same with some layers left as they are."""
        left = [s for s in self.sites if s.name in names]
        kept = tuple(s for s in self.sites if s.name not in names)
        more = (Skipped(s.name, type(s.layer).__name__, reason) for s in left)
        return Survey(kept, (*self.skipped, *more))


class Flag(NamedTuple):
    """An attribute that conversion changed, and what it was."""

    module: str
    attribute: str
    value: Any


def survey(net: nn.Module, *, dropout: bool = False, proved: bool = False) -> Survey:
    """Walk over every module once, whatever number of names it has.

    Args:
        net: The network.
        dropout: Count the network's own dropout layers among those that could be converted.
        proved: Count layers whose own forward calls that of their stock class, too: an example will
            prove (or has proved, before they were saved) that it always does.
    """
    sites: list[Site] = []
    skipped: list[Skipped] = []
    for name, module in net.named_modules():
        _check_plain(name or "the network", module)
        host = host_of(type(module))
        if host is not None and host.kind == "dropout" and not dropout:
            host = None
        reason = _refusal(net, name, module, host, proved)
        if host is not None and reason is None:
            sites.append(Site(name, module, host))
        elif reason is not None:
            skipped.append(Skipped(name, type(module).__name__, reason))
    return Survey(tuple(sites), tuple(skipped))


def _check_plain(name: str, module: nn.Module) -> None:
    if isinstance(module, Host) or type(module).__name__ == "BayesianModel":
        raise ConversionError(
            f"'{name}' is Bayesian already; converting twice would stack two posteriors. Go back "
            "first: net = lb.collapse(model)"
        )
    if isinstance(module, WRAPPERS):
        kind = type(module).__name__
        raise ConversionError(
            f"'{name}' is wrapped in {kind}, which keeps in step only what it was given: not what "
            f"a conversion adds. Convert first, then wrap: model = lb.bayesianize(wrapped.module, "
            f"...), then {kind}(model)"
        )


def _refusal(
    net: nn.Module, name: str, module: nn.Module, host: type[Host] | None, proved: bool
) -> str | None:
    """Why a module with parameters of its own stays as it is; None if it does not or has none."""
    own = [p for p in module._parameters.values() if p is not None]
    if is_parametrized(module):
        return PARAMETRISED
    if host is None:
        return "no host for this type: its parameters stay point estimates" if own else None
    reasons = (
        _lazy(module),
        _overridden(module, host, proved),
        _unreal(module, host),
        _reserved(module, host),
        _bypassed(net, name, proved),
    )
    if found := next(filter(None, reasons), None):
        return found
    if not host.tensors(module):
        return NO_PARAMETER if own else None
    return host.refusal(module)


def _lazy(module: nn.Module) -> str | None:
    lazy = any(p is not None and is_lazy(p) for p in module._parameters.values())
    return "not initialised: run one forward pass before converting" if lazy else None


def _unreal(module: nn.Module, host: type[Host]) -> str | None:
    other = [p.dtype for p in host.tensors(module).values() if not p.dtype.is_floating_point]
    return f"its parameters are {other[0]}: laws are of real numbers" if other else None


def _overridden(module: nn.Module, host: type[Host], proved: bool) -> str | None:
    stock = stock_of(type(module))
    assert stock is not None
    for method in host.overrides:
        if method in module.__dict__:
            return f"{method} was replaced on this instance"
        if getattr(type(module), method) is getattr(stock, method):
            continue
        if method != "forward" or not defers(type(module), stock, host):
            return f"overrides {method} of {stock.__name__}, which a host would replace"
        if not proved:
            return (
                f"overrides forward of {stock.__name__}, and calls it: only an example, "
                "bayesianize(net, method, example=x), can prove that it always does"
            )
    return None


def _reserved(module: nn.Module, host: type[Host]) -> str | None:
    # What these have a host has on purpose; so have the private names of one that inherits none.
    known = stock_of(type(module)), nn.Module
    words = [word for word in dir(host) if host.inherits_stock or not word.startswith("_")]
    own = (w for w in (*words, *Host.__annotations__) if not any(hasattr(c, w) for c in known))
    taken = [word for word in own if hasattr(module, word)]
    return f"has an attribute '{taken[0]}' of its own" if taken else None


def _bypassed(net: nn.Module, name: str, proved: bool) -> str | None:
    """`out_proj` of an attention layer that is no host: its weight is read, it never runs."""
    parent_name, _, child = name.rpartition(".")
    parent = net.get_submodule(parent_name) if name else None
    if not isinstance(parent, nn.MultiheadAttention) or child != "out_proj":
        return None
    why = _refusal(net, parent_name, parent, host_of(type(parent)), proved)
    return None if why is None else "its attention layer never calls it and " + why


def raw_parameters(sites: Sequence[Site]) -> Iterator[Skipped]:
    """Parameters of a convertible layer that its host does not make random."""
    for site in sites:
        for name, p in site.layer._parameters.items():
            if p is not None and name not in site.tensors:
                full = f"{site.name}.{name}" if site.name else name
                yield Skipped(full, "Parameter", f"{site.host.__name__} keeps it as it is")


def mark_ends(sites: Sequence[Site], order: Sequence[str] | None) -> tuple[Site, ...]:
    """Tell the first and the last layer, by the order in which they ran or are registered."""
    ends_of = {site.name for site in sites if site.host.kind != "dropout"}
    names = [name for name in order or [site.name for site in sites] if name in ends_of]
    if not names:
        return tuple(sites)
    ends = (names[0], names[-1])
    return tuple(replace(s, first=s.name == ends[0], last=s.name == ends[1]) for s in sites)


def tie(net: nn.Module, sites: Sequence[Site], slots: Slots) -> None:
    """Tied tensors share one posterior; every posterior is keyed by the least name of its tensor.

    The least one by letters, for which name comes first hangs on the order of registration.
    """
    by_parameter: dict[int, Posterior] = {}
    # A layer with a fixed row has a word in what the others share, so it comes first.
    for site in sorted(sites, key=lambda site: site.fixed_row is None):
        for slot, posterior in slots.get(site.name, {}).items():
            tensor = site.layer._parameters.get(slot)
            if tensor is not None:
                slots[site.name][slot] = by_parameter.setdefault(id(tensor), posterior)
    names = _least_names(net)
    for site in sites:
        for slot, posterior in slots.get(site.name, {}).items():
            key = f"{names[site.layer]}.{slot}".lstrip(".")
            posterior.key = min(posterior.key or key, key)


def tied_without_noise(net: nn.Module) -> Iterator[tuple[str, str]]:
    """Names of tensors that a layer uses as they are while another layer draws them."""
    drawn = {
        id(host.base(slot)): f"{name}.{slot}"
        for name, host in hosts(net)
        for slot in host.slots
        if host.is_tensor(slot)
    }
    for name, module in net.named_modules():
        held = module.slots if isinstance(module, Host) else ()
        for own, tensor in module._parameters.items():
            if id(tensor) in drawn and own not in held:
                yield f"{name}.{own}".lstrip("."), drawn[id(tensor)]


def _least_names(net: nn.Module) -> dict[nn.Module, str]:
    """Of every module the first of its names by letters."""
    names: dict[nn.Module, str] = {}
    for name, module in net.named_modules(remove_duplicate=False):
        names[module] = min(names.get(module, name), name)
    return names


def convert(net: nn.Module, sites: Sequence[Site], slots: Slots, scope: Scope) -> list[Flag]:
    """Change the classes in place; where a class refuses to be inherited, `revert` undoes it."""
    for site in sites:
        # The compiler refuses stock recurrent layers: they become hosts, if empty ones.
        if site.name in slots or not site.host.inherits_stock:
            kind = type(site.layer)
            stock = stock_of(kind)
            inside = stock is not None and defers(kind, stock, site.host)
            site.layer.__class__ = joint_class(site.host, kind, inside)
            site.layer.slots = nn.ModuleDict(slots.get(site.name, {}))
            site.layer.__dict__["scope"] = scope
            site.layer.after_conversion()  # type: ignore[operator]
    return switch_fast_paths_off(net)


def switch_fast_paths_off(net: nn.Module) -> list[Flag]:
    """Fused encoder kernels read the weights and would bypass every converted layer."""
    flags = []
    for name, module in net.named_modules():
        if not any(isinstance(child, Host) for child in module.modules()):
            continue
        for kind, attribute, off in (
            (nn.TransformerEncoderLayer, "activation_relu_or_gelu", 0),
            (nn.TransformerEncoder, "use_nested_tensor", False),
        ):
            if isinstance(module, kind) and getattr(module, attribute, off) != off:
                flags.append(Flag(name, attribute, getattr(module, attribute)))
                setattr(module, attribute, off)
    return flags


def switch_dropout_off(net: nn.Module) -> list[Flag]:
    """Set the rate of every dropout layer to 0, but for those that are a method's masks by now."""
    flags = []
    for name, module in net.named_modules():
        plain = isinstance(module, nn.modules.dropout._DropoutNd) and not isinstance(module, Host)
        if plain and module.p > 0:
            flags.append(Flag(name, "p", module.p))
            module.p = 0.0
    return flags


def revert(net: nn.Module, flags: Sequence[Flag]) -> None:
    """Turn every host back into its original class and restore the flags."""
    for module in [m for m in net.modules() if isinstance(m, Host)]:
        host, plain = type(module), original_class(module)
        del module.slots, module.scope
        object.__setattr__(module, "__class__", plain)
        host.after_reversal(module)
    for flag in flags:
        setattr(net.get_submodule(flag.module), flag.attribute, flag.value)


def hosts(net: nn.Module) -> Iterator[tuple[str, Host]]:
    """Every host by its first name."""
    for name, module in net.named_modules():
        if isinstance(module, Host):
            yield name, module


def posteriors(net: nn.Module) -> Iterator[tuple[Host, str, Posterior, Tensor]]:
    """Every posterior once, with a host, the slot and the tensor it stands for."""
    seen: set[int] = set()
    for _, host in hosts(net):
        for slot in host.slots:
            posterior = host.posterior(slot)
            if id(posterior) not in seen:
                seen.add(id(posterior))
                yield host, slot, posterior, host.base(slot)
