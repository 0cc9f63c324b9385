"""A deep ensemble as what it is: networks that are trained alone, in turn or one a process."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from leanbayes.convert import bayesianize, collapse
from leanbayes.errors import ConfigError
from leanbayes.likelihood import Likelihood
from leanbayes.methods.deep_ensemble import DeepEnsemble, name_of
from leanbayes.methods.map import MAP
from leanbayes.model import BayesianModel
from leanbayes.train.config import FitConfig
from leanbayes.train.evaluation import on_device
from leanbayes.train.keyed import seeded
from leanbayes.train.loop import FitResult, fit
from leanbayes.train.runtime import Runtime

Trained = Literal["together", "in_turn", "by_process"]
CPU = torch.device("cpu")


def trained_members(  # noqa: PLR0913
    net: nn.Module,
    method: DeepEnsemble,
    data: Any,
    likelihood: Likelihood,
    members: Trained,
    *,
    example: Any,
    runtime: Runtime,
    config: FitConfig,
    **options: Any,
) -> tuple[BayesianModel, FitResult]:
    """Train K plain networks, then put them together; the result is that of member 0.

    Member k has the seed `config.seed + k` and, where there is one, a folder of its own. By process
    k is trained by process k mod world without a word to the others; all get all members then.
    """
    apart = members == "by_process"
    nets = starts(net, method, config.seed, example)
    results = {}
    for k in range(method.members):
        if not apart or k % runtime.world == runtime.rank:
            model = bayesianize(nets[k], MAP())
            own = _config(config, k, runtime, apart=apart)
            results[k] = fit(model, data, likelihood, config=own, **options)
            nets[k] = collapse(model).cpu()
    if apart:
        _share(nets, runtime)
    result = runtime.broadcast(results.get(0))
    model = together(net, nets, method, example)
    model.likelihood = likelihood
    return model, result


def starts(net: nn.Module, method: DeepEnsemble, seed: int, example: Any = None) -> list[nn.Module]:
    """The networks that training starts from: the members of a conversion under this seed."""
    with seeded(seed):
        model = bayesianize(deepcopy(net).cpu(), method, example=on_device(example, CPU))
    _refuse_shared(model)
    return [collapse(model, member=k) for k in range(method.members)]


def _refuse_shared(model: BayesianModel) -> None:
    """Every network would train its own, and only the first one's would be left."""
    own = {id(base) for _, _, _, base in model.posteriors()}
    own |= {id(p) for _, _, posterior, _ in model.posteriors() for p in posterior.parameters()}
    shared = [n for n, p in model.net.named_parameters() if p.requires_grad and id(p) not in own]
    if shared:
        names = ", ".join(shared[:3]) + (" ..." if len(shared) > 3 else "")
        raise ConfigError(
            f"{len(shared)} parameters have no host and are shared by all members ({names}): "
            "networks that train alone cannot share. Write members='together', or freeze them "
            "with requires_grad_(False)"
        )


def _config(config: FitConfig, member: int, runtime: Runtime, *, apart: bool) -> FitConfig:
    own: dict[str, Any] = {"seed": config.seed + member}
    if config.folder is not None:
        own["folder"] = str(Path(config.folder) / f"member-{member}")
    if apart:
        own["strategy"] = "single"
        own["progress"] = config.progress if runtime.is_first else False
    return replace(config, **own)


def _share(nets: list[nn.Module], runtime: Runtime) -> None:
    """Every member from the process that trained it."""
    if runtime.world == 1:
        return
    for k, net in enumerate(nets):
        for tensor in net.state_dict().values():
            if isinstance(tensor, Tensor):
                here = tensor.to(runtime.device).contiguous()
                dist.broadcast(here, src=k % runtime.world)
                tensor.copy_(here)


def together(
    net: nn.Module, nets: list[nn.Module], method: DeepEnsemble, example: Any
) -> BayesianModel:
    """An ensemble of networks that are trained already; `net` becomes the first of them."""
    net.load_state_dict(nets[0].state_dict())
    others = iter(nets[1:])
    made = replace(method, factory=lambda: next(others), init_std=None)
    model = bayesianize(net, made, example=example)
    model.method = replace(method, factory=name_of(method.factory))  # as it was asked for
    return model
