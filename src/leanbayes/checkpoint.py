"""Save and load: safetensors and a JSON description in one directory; never pickle."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leanbayes.convert import Draft, assemble, tensor_hash
from leanbayes.errors import CheckpointError
from leanbayes.likelihood import Likelihood
from leanbayes.methods.base import Method
from leanbayes.model import BayesianModel, unwrap
from leanbayes.posteriors.base import Posterior
from leanbayes.posteriors.shards import whole
from leanbayes.saved import DESCRIPTION, FORMAT, TENSORS, Saved, kind_of
from leanbayes.select import Site
from leanbayes.storage import render_json, render_tensors, write_directory
from leanbayes.surgery import Survey, hosts, mark_ends, survey, tie
from leanbayes.version import __version__


def save(model: nn.Module, path: str | Path, *, posterior_only: bool = False) -> None:
    """Write a model to a directory, atomically; an older checkpoint there is replaced.

    Args:
        model: A BayesianModel or its DDP, FSDP2 or compiled wrapper. Under several processes all
            must call; the first one writes.
        path: The directory.
        posterior_only: Leave out every tensor of the network that is as it was at conversion; to
            load, the same pre-trained network is then needed, and is checked.

    Example:
        >>> import leanbayes as lb, tempfile, torch
        >>> model = lb.bayesianize(torch.nn.Linear(4, 3), lb.MeanField())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lb.save(model, folder + "/model")
        ...     again = lb.load(torch.nn.Linear(4, 3), folder + "/model")
        >>> torch.equal(again.net.slots.weight.log_std, model.net.slots.weight.log_std)
        True
    """
    inner = unwrap(model)
    tensors, aliases = _unique_tensors(inner)
    if posterior_only:
        same = inner.fingerprint
        tensors = {k: t for k, t in tensors.items() if tensor_hash(t) != same.get(_base_key(k))}
    description = {
        **_describe(inner),
        "aliases": aliases,
        "posterior_only": posterior_only,
        "tensors": {key: kind_of(tensor) for key, tensor in tensors.items()},
    }
    folder = Path(path)
    files = {
        TENSORS: render_tensors(folder / TENSORS, tensors),
        DESCRIPTION: render_json(folder / DESCRIPTION, description),
    }
    _write_once(folder, files)


def load(net: nn.Module, path: str | Path) -> BayesianModel:
    """Convert `net` in place to the saved model.

    The method, its settings and the converted layers come from the file; so do the values. Any
    error leaves `net` as it was.

    Args:
        net: A plain network of the architecture that was saved; for a posterior-only checkpoint
            with the pre-trained weights that were converted then.
        path: The directory that `lb.save` wrote.

    Raises:
        CheckpointError: Damaged, foreign, or not for this network.
    """
    saved = Saved.read(Path(path))
    method = saved.method()
    found = survey(net, dropout=method.takes_dropout, proved=True)
    sites = _sites(net, found, saved)
    likelihood, shared, fingerprint = saved.likelihood(), saved.shared, saved.fingerprint
    calibration = saved.calibration()
    slots = {s.name: _slots(method, s, saved) for s in sites if s.name in saved.layers}
    tie(net, sites, slots)
    state = _complete_state(net, slots, saved, likelihood)
    _check_ties(net, state, saved)
    model = assemble(Draft(net, method, sites, slots, found.skipped, likelihood))
    model.fingerprint, model.calibration = fingerprint, calibration
    model.load_state_dict(_with_versions(state, model))
    names = dict(hosts(net))
    model.shared = [(names[name], slot) for name, slot in shared]
    return model


def _with_versions(state: Mapping[str, Tensor], model: BayesianModel) -> Mapping[str, Tensor]:
    """The state with the versions of the modules: some refuse, or convert, one that has none.

    Keys and shapes are those of this very network, so it is of this version.
    """
    found = OrderedDict(state)
    found._metadata = getattr(model.state_dict(), "_metadata", None)  # type: ignore[attr-defined]
    return found


def _describe(model: BayesianModel) -> dict[str, Any]:
    names = {host: name for name, host in hosts(model.net)}
    kept, known = model.likelihood, model.calibration
    likelihood = None
    if isinstance(kept, Likelihood):
        likelihood = {"name": type(kept).__name__, "settings": kept.settings()}
    return {
        "format": FORMAT,
        "leanbayes": __version__,
        "torch": torch.__version__,
        "method": model.method.to_json(),
        "likelihood": likelihood,
        "layers": {name: list(host.slots) for host, name in names.items()},
        "ends": [model.report.stem, model.report.output],
        "shared": [[names[host], slot] for host, slot in model.shared],
        "fingerprint": model.fingerprint,
        **({} if known is None else {"calibration": known.to_json()}),
    }


def _unique_tensors(model: BayesianModel) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor once, on the CPU; tied ones by alias."""
    first: dict[int, str] = {}
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    for key, value in model.state_dict(keep_vars=True).items():
        if not isinstance(value, Tensor):
            raise CheckpointError(f"{key} is no tensor ({type(value).__name__}): cannot be saved")
        if id(value) in first:
            aliases[key] = first[id(value)]
            continue
        first[id(value)] = key
        tensors[key] = whole(value).detach().cpu().contiguous().clone()
    return tensors, aliases


def _base_key(key: str) -> str:
    return key.removeprefix("net.")


def _sites(net: nn.Module, found: Survey, saved: Saved) -> tuple[Site, ...]:
    sites = mark_ends(found.sites, saved.ends)
    missing = sorted(set(saved.layers) - {site.name for site in sites})
    if missing:
        raise CheckpointError(
            f"{saved.path} is for another network: it converts '{missing[0]}'"
            + (f" and {len(missing) - 1} more layers" if missing[1:] else "")
            + f", which {type(net).__name__} lacks or cannot convert"
        )
    return sites


def _slots(method: Method, site: Site, saved: Saved) -> dict[str, Posterior]:
    named = {
        alias: saved.tensors[key] for alias, key in saved.aliases.items() if key in saved.tensors
    }
    try:
        filled = method.restored(site, {**saved.tensors, **named})
    except Exception as error:  # settings and tensors that do not go together
        raise CheckpointError(
            f"{saved.path / DESCRIPTION} does not fit '{site.name}': {error}"
        ) from error
    wanted = saved.layers[site.name]
    if not set(wanted) <= set(filled):
        raise CheckpointError(f"{saved.path}: {method.name} has no slots {wanted} in '{site.name}'")
    return {slot: filled[slot] for slot in wanted}


def _complete_state(
    net: nn.Module,
    slots: Mapping[str, Mapping[str, Posterior]],
    saved: Saved,
    likelihood: Likelihood | None,
) -> dict[str, Tensor]:
    """The whole state of the model to be, every shape and hash checked beforehand."""
    expected = _expected_state(net, slots)
    if likelihood is not None:
        expected.update({f"likelihood.{k}": v for k, v in likelihood.state_dict().items()})
    state = dict(saved.tensors)
    for alias, key in saved.aliases.items():
        if key in state:
            state[alias] = state[key]
    extra = sorted(key for key in state if key not in expected)
    if extra:
        raise CheckpointError(f"{saved.path} is for another network: it has '{extra[0]}' besides")
    for key, own in expected.items():
        if key not in state:
            state[key] = _own_tensor(key, own, saved)
        elif state[key].shape != own.shape:
            raise CheckpointError(
                f"{saved.path} is for another network: '{key}' has shape "
                f"{tuple(state[key].shape)}, the network's {tuple(own.shape)}"
            )
    return state


def _expected_state(
    net: nn.Module, slots: Mapping[str, Mapping[str, Posterior]]
) -> dict[str, Tensor]:
    expected = {f"net.{key}": value for key, value in net.state_dict().items()}
    for name, module in net.named_modules(remove_duplicate=False):
        first = next((n for n, m in net.named_modules() if m is module), name)
        for slot, posterior in slots.get(first, {}).items():
            prefix = ".".join(part for part in ("net", name, "slots", slot) if part)
            expected.update({f"{prefix}.{k}": v for k, v in posterior.state_dict().items()})
    return expected


def _check_ties(net: nn.Module, state: Mapping[str, Tensor], saved: Saved) -> None:
    """A tied tensor has one value and one draw: the file and the network must agree on it."""
    parameters = {f"net.{name}": p for name, p in net.state_dict(keep_vars=True).items()}
    first: dict[int, str] = {}
    for key, parameter in parameters.items():
        if not isinstance(parameter, nn.Parameter):
            continue
        here, there = first.setdefault(id(parameter), key), saved.aliases.get(key, key)
        apart = here not in (key, there) and not torch.equal(state[here], state[key])
        if apart or (there in parameters and parameters[there] is not parameter):
            raise CheckpointError(
                f"{saved.path} is for another network: '{_base_key(key)}' is tied to "
                f"'{_base_key(here if apart else there)}' in the "
                f"{'network' if apart else 'file'} alone"
            )


def _own_tensor(key: str, own: Tensor, saved: Saved) -> Tensor:
    """A tensor that the file leaves to the network: it must be the one that was converted."""
    recorded = saved.fingerprint.get(_base_key(key))
    if not saved.description.get("posterior_only") or recorded is None:
        raise CheckpointError(f"{saved.path} lacks '{key}': it is for another network")
    if tensor_hash(own) != recorded:
        raise CheckpointError(
            f"{saved.path} holds the posterior only and needs the pre-trained network that was "
            f"converted; '{_base_key(key)}' of this one differs. Load those weights first"
        )
    return own


def _write_once(path: Path, files: Mapping[str, bytes]) -> None:
    """Write in the first process; all learn how it went, so that none waits for a failed one."""
    outcome: list[str | None] = [None]
    if _is_first_process():
        try:
            write_directory(path, files)
        except CheckpointError as error:
            outcome = [str(error)]
    if _processes() > 1:
        torch.distributed.broadcast_object_list(outcome)
    if outcome[0] is not None:
        raise CheckpointError(outcome[0])


def _processes() -> int:
    ready = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if ready else 1


def _is_first_process() -> bool:
    return _processes() == 1 or torch.distributed.get_rank() == 0
