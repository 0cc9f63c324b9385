"""`bayesianize` and `collapse`: from a plain network to a Bayesian one and back."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from leanbayes.calls import ROWLESS, calls_of, rowless
from leanbayes.errors import ConversionError
from leanbayes.layers import host_of
from leanbayes.layers.base import Host, original_name
from leanbayes.likelihood import needed
from leanbayes.liveness import check_alive, tied_slots
from leanbayes.methods.base import Method, checked_method
from leanbayes.model import BayesianModel, is_sequence_first, is_sharded, unwrap
from leanbayes.modes import mixes_rows, uncompiled
from leanbayes.plan import MEAN, Scope, as_dict
from leanbayes.posteriors.base import Posterior
from leanbayes.posteriors.shards import whole
from leanbayes.report import ConversionReport, Converted, Skipped
from leanbayes.select import Site
from leanbayes.settle import settle
from leanbayes.surgery import (
    NO_PARAMETER,
    PARAMETRISED,
    Flag,
    Survey,
    convert,
    mark_ends,
    posteriors,
    raw_parameters,
    revert,
    survey,
    switch_dropout_off,
    tie,
    tied_without_noise,
)

LAZY = (UninitializedParameter, UninitializedBuffer)


def bayesianize(
    net: nn.Module,
    method: Method,
    *,
    example: Any = None,
    data: Iterable[Any] | None = None,
    likelihood: nn.Module | None = None,
    scores: Mapping[str, Tensor] | None = None,
) -> BayesianModel:
    """Make a network Bayesian, in place.

    Layers that a method selects get distributions over their parameters. The network keeps its
    modules, Parameters and state-dict keys, and gains keys with `.slots.`. Convert before you
    compile, wrap in DDP or FSDP2, or build the optimiser; load trained weights before.

    Args:
        net: Any module, trained or not.
        method: Which method, with its settings, such as `lb.MeanField()`.
        example: A batch of inputs; a tuple is taken as arguments, a dict as keywords. Recommended:
            with it every converted layer is proved to take part in the output, layers that run
            several times a pass share one draw, and the output layer is the last one that runs.
        data: Batches of (inputs, targets), for methods that choose parameters by looking at data
            (`lb.Partial`).
        likelihood: Kept with the model, so that `lb.predict` needs none.
        scores: Scores of `lb.sensitivity`, for `lb.Partial`, instead of data.

    Returns:
        The model. `print(model.report)` tells what was converted, what was not, and why.

    Raises:
        ConversionError: The network cannot be converted; it is unchanged.

    Example:
        >>> import leanbayes as lb, torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> model = lb.bayesianize(net, lb.MeanField(), example=torch.randn(5, 4))
        >>> len(model.report.converted)
        2
    """
    if likelihood is not None:
        needed(likelihood, "bayesianize")
    _check_network(net)
    example, has_example = as_dict(example), example is not None
    found = survey(net, dropout=checked_method(method).takes_dropout, proved=has_example)
    found, order = _observed(net, found, example) if has_example else (found, None)
    sites = mark_ends(found.sites, order)
    method = method.prepared(net, sites, data=data, likelihood=likelihood, scores=scores)
    slots = {s.name: filled for s in sites if method.select(s) and (filled := method.slots(s))}
    if method.converts and not slots:
        raise ConversionError(_nothing_converted(found, method))
    method.check_slots(sites, slots)
    last = next((name for name in reversed(order or []) if not _is_dropout(net, name)), None)
    draft = Draft(net, method, sites, slots, found.skipped, likelihood, ran_last=last)
    return assemble(draft, example=example)


@dataclass(frozen=True)
class Draft:
    """Everything that a conversion needs, before anything has been changed."""

    net: nn.Module
    method: Method
    sites: Sequence[Site]
    slots: dict[str, dict[str, Posterior]]
    skipped: Sequence[Skipped]
    likelihood: nn.Module | None = None
    ran_last: str | None = None  # of the layers of a convertible type


def assemble(draft: Draft, example: Any = None) -> BayesianModel:
    """Put the posteriors into the layers; on any failure the network is as it was."""
    net, fingerprint = draft.net, fingerprint_of(draft.net)
    base = sum(_size(p) for p in net.parameters())
    _host_attention_of(draft)
    tie(net, draft.sites, draft.slots)
    scope, flags = Scope(), list[Flag]()
    try:
        flags += convert(net, draft.sites, draft.slots, scope)
        if draft.method.silences_dropout:
            flags += switch_dropout_off(net)
        report = _report(draft, base, has_example=example is not None)
        model = BayesianModel(net, draft.method, scope, report, likelihood=draft.likelihood)
        model.flags, model.fingerprint = flags, fingerprint
        if example is not None:
            with uncompiled(model):  # a graph cannot draw by key
                check_alive(model, example)
            scope.plan = MEAN  # the last one was for the rows of the example
        else:
            model.shared = tied_slots(net)
    except BaseException:
        revert(net, flags)
        raise
    return model


def collapse(model: nn.Module, member: int | None = None) -> nn.Module:
    """A plain network of the original classes, with the mean or a member's weights.

    Use it to deploy without uncertainty, to export, or to convert again by another method. The
    model stays as it is; hooks, flags and modes are those of the original network. A weight that
    two layers share becomes two weights where each layer has factors of its own (`RankOne`,
    `Implicit`, `SharedEnsemble`, `BatchEnsemble`).

    Args:
        model: The BayesianModel or its wrapper.
        member: Number of a member, for methods with members; the mean network if None.

    Returns:
        A copy, without posteriors.

    Example:
        >>> import leanbayes as lb, torch
        >>> net = torch.nn.Linear(4, 3)
        >>> plain = lb.collapse(lb.bayesianize(net, lb.MeanField()))
        >>> type(plain) is torch.nn.Linear
        True
    """
    source = unwrap(model)
    members = source.method.index_members
    if member is not None and not 0 <= member < members:
        raise ConversionError(
            f"member {member} does not exist: the method {source.method.name} has {members} members"
        )
    if is_sharded(source):
        raise ConversionError(
            "collapse copies the whole network, found one in shards (FSDP2): save it from all "
            "processes, lb.save(model, path), and write lb.collapse(lb.load(net, path))"
        )
    net = copy.deepcopy(source.net)
    settle(net, member)
    revert(net, source.flags)
    return net


def _check_network(net: Any) -> None:
    if not isinstance(net, nn.Module):
        is_class = isinstance(net, type)
        found = f"the class {net.__name__}" if is_class else f"a {type(net).__name__}"
        write = f"{net.__name__}(), with its arguments" if is_class else "lb.bayesianize(net, ...)"
        raise ConversionError(f"expected a network (nn.Module), found {found}. Write {write}")


def _observed(net: nn.Module, found: Survey, example: Any) -> tuple[Survey, list[str]]:
    """What can be converted, by a look at its inputs, and what ran in which order."""
    layers = {name: net.get_submodule(name) for name in (*_names(found.sites), *_stock(net, found))}
    with uncompiled(net):
        seen = calls_of(net, layers, example)
        if not any(is_sequence_first(m) for m in net.modules()):
            apart = rowless(net, layers, example, seen)
            attentions = [n for n in apart if isinstance(layers[n], nn.MultiheadAttention)]
            apart |= {f"{name}.out_proj" for name in attentions}  # which a host alone would call
            if not apart.issuperset(_names(found.sites)):  # then it is the network that has no rows
                found = found.without(apart, ROWLESS)
    return found, seen.order


def _is_dropout(net: nn.Module, name: str) -> bool:
    return isinstance(net.get_submodule(name), nn.modules.dropout._DropoutNd)


def _names(layers: Iterable[Site | Skipped]) -> list[str]:
    return [layer.name for layer in layers]


def _stock(net: nn.Module, found: Survey) -> list[str]:
    """Layers of a convertible type that stay as they are."""
    return [s.name for s in found.skipped if host_of(type(net.get_submodule(s.name)))]


def _host_attention_of(draft: Draft) -> None:
    """An attention layer must be a host, if an empty one, for its `out_proj` to run at all."""
    for site in draft.sites:
        if site.host.kind == "attention" and f"{site.name}.out_proj".lstrip(".") in draft.slots:
            draft.slots.setdefault(site.name, {})


def _report(draft: Draft, base: int, *, has_example: bool) -> ConversionReport:
    method, slots = draft.method, draft.slots
    converted = tuple(_converted(draft))
    unselected = [
        Skipped(site.name, original_name(site.layer), f"not selected by {method.name}")
        for site in draft.sites
        if not slots.get(site.name)
    ]
    raw = raw_parameters([site for site in draft.sites if site.name in slots])
    return ConversionReport(
        method=method.name,
        converted=converted,
        skipped=(*draft.skipped, *unselected, *raw) if method.converts else (),
        base=base,
        added=sum(layer.added for layer in converted),
        random_dimensions=_random_dimensions(draft.net),
        index_members=method.index_members,
        output=next((site.name for site in draft.sites if site.last), None),
        stem=next((site.name for site in draft.sites if site.first), None),
        notes=(*_output_notes(draft), *_notes(draft.net, has_example)),
    )


def _converted(draft: Draft) -> Iterator[Converted]:
    seen: set[int] = set()
    for site in draft.sites:
        filled = draft.slots.get(site.name)
        if filled:
            fresh = [p for p in filled.values() if id(p) not in seen]
            seen.update(map(id, fresh))
            added = sum(p.numel() for posterior in fresh for p in posterior.parameters())
            yield Converted(site.name, original_name(site.layer), tuple(filled), added)


def _random_dimensions(net: nn.Module) -> int:
    """Numbers of one draw of the network; those under one key are the same ones."""
    found: dict[str, int] = {}
    for _, _, posterior, base in posteriors(net):
        found |= posterior.random_numbers(base)
    return sum(found.values())


def _output_notes(draft: Draft) -> Iterator[str]:
    """Say so where `output` is not the layer that a reader of the network would call so."""
    output = next((site.name for site in draft.sites if site.last), None)
    if draft.ran_last is not None and draft.ran_last != output and output is not None:
        yield f"'{draft.ran_last}' runs last and stays as it is: the output is '{output}'"


def _notes(net: nn.Module, has_example: bool) -> Iterable[str]:
    kind = nn.modules.dropout._DropoutNd
    dropouts = [
        name for name, m in net.named_modules() if isinstance(m, kind) and not isinstance(m, Host)
    ]
    if dropouts:
        now = "stays" if any(net.get_submodule(name).p for name in dropouts) else "is switched off"
        yield f"the network's own dropout {now}: {', '.join(dropouts[:4])}" + (
            f" and {len(dropouts) - 4} more" if len(dropouts) > 4 else ""
        )
    for own, drawn in tied_without_noise(net):
        yield f"'{own}' is tied to '{drawn}' and has no noise where its own layer uses it"
    if any(is_sequence_first(m) for m in net.modules()):
        yield "batch_first=False: one draw a batch in training, samples one after another"
    if mixes_rows(net):
        yield (
            "BatchNorm without running statistics: rows of a batch predict together, "
            "samples one after another"
        )
    if any(q.by_input for _, _, q, _ in posteriors(net)):
        yield "masks of activations are as random as inputs are large: not in random dimensions"
    if not has_example:
        yield (
            "no example was given: layers were not proved to act, and the output is the last "
            "layer registered"
        )


def _nothing_converted(found: Survey, method: Method) -> str:
    have = sorted({type(s.layer).__name__ for s in found.sites})
    if have:
        where = getattr(method, "where", None)
        names = [site.name for site in found.sites]
        more = f" and {len(names) - 6} more" if names[6:] else ""
        return (
            f"{method.name} selects none of the convertible layers ({', '.join(have)}; by name "
            f"{', '.join(names[:6])}{more}): "
            f"select={method.select}" + ("" if where is None else f", where={where}")
        )
    if owned := [s for s in found.skipped if s.reason in (PARAMETRISED, NO_PARAMETER)]:
        more = f" and {len(owned) - 1} more" if owned[1:] else ""
        return (
            f"no convertible layer: '{owned[0].name}'{more}: {owned[0].reason}. Write "
            "the weights out first: torch.nn.utils.parametrize.remove_parametrizations(layer, "
            "'weight'), or torch.nn.utils.remove_weight_norm(layer) where that made it"
        )
    types = sorted({s.type for s in found.skipped}) or ["no module with parameters"]
    return (
        f"no convertible layer in {', '.join(types)}. Hosts exist for Linear, Conv, norm, "
        "Embedding and MultiheadAttention layers; add one for your type with lb.register_host"
    )


def _size(parameter: nn.Parameter) -> int:
    return 0 if isinstance(parameter, UninitializedParameter) else parameter.numel()


def fingerprint_of(net: nn.Module) -> dict[str, str]:
    """sha256 of type, shape and bytes of every tensor of the state."""
    return {name: tensor_hash(tensor) for name, tensor in net.state_dict().items()}


def tensor_hash(tensor: Any) -> str:
    """sha256 of a tensor; extra state that is no tensor hashes by its text."""
    if not isinstance(tensor, Tensor) or isinstance(tensor, LAZY) or tensor.is_meta:
        return hashlib.sha256(repr(tensor).encode()).hexdigest()
    plain = whole(tensor).detach().cpu().contiguous()
    digest = hashlib.sha256(f"{plain.dtype}{tuple(plain.shape)}".encode())
    digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
