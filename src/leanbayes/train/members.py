"""A deep ensemble as what it is: networks that are trained alone, in turn or one a process."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from leanbayes.convert import bayesianize, collapse
from leanbayes.likelihood import Likelihood
from leanbayes.methods.deep_ensemble import DeepEnsemble, called
from leanbayes.methods.map import MAP
from leanbayes.model import BayesianModel
from leanbayes.train.config import FitConfig
from leanbayes.train.loop import FitResult, fit
from leanbayes.train.runtime import Runtime

Trained = Literal["together", "in_turn", "by_process"]


def trained_members(
    net: nn.Module,
    method: DeepEnsemble,
    data: Any,
    likelihood: Likelihood,
    members: Trained,
    *,
    config: FitConfig,
    **options: Any,
) -> tuple[BayesianModel, FitResult]:
    """Train K plain networks, then put them together.

    Member k has the seed `config.seed + k` and, where there is one, a folder of its own. By process
    k is trained by process k mod world without a word to the others; all get all members then.
    """
    with Runtime.of(config) as runtime:
        apart = members == "by_process"
        mine = [k for k in range(method.members) if not apart or k % runtime.world == runtime.rank]
        starts = list(_starts(net, method, config.seed))
        results = {}
        for k in mine:
            alone = _config(config, k, single=apart)
            model = bayesianize(starts[k], MAP())
            results[k] = fit(model, data, likelihood, config=alone, **options)
            starts[k] = collapse(model)
        if apart and runtime.world > 1:
            _share(starts, runtime)
        result = results[mine[0]] if mine else None
        result = runtime.broadcast(result) if apart else result
    net.load_state_dict(starts[0].state_dict())
    others = iter(starts[1:])
    together = bayesianize(net, replace(method, factory=lambda: next(others), init_std=None))
    together.likelihood = likelihood
    assert result is not None
    return together, result


def _starts(net: nn.Module, method: DeepEnsemble, seed: int) -> Iterator[nn.Module]:
    """The network itself, then fresh ones, each under a seed of its own."""
    yield deepcopy(net)
    for k in range(1, method.members):
        with torch.random.fork_rng():
            torch.manual_seed(seed + k)
            if method.factory is not None:
                yield called(method.factory)
                continue
            fresh = deepcopy(net)
            for module in fresh.modules():
                reset = getattr(module, "reset_parameters", None)
                if callable(reset):
                    reset()
            yield fresh


def _config(config: FitConfig, member: int, *, single: bool) -> FitConfig:
    folder = None
    if config.folder is not None:
        folder = str(Path(config.folder) / f"member-{member}")
    strategy = "single" if single else config.strategy
    return replace(config, seed=config.seed + member, folder=folder, strategy=strategy)


def _share(nets: list[nn.Module], runtime: Runtime) -> None:
    """Every member from the process that trained it."""
    for k, net in enumerate(nets):
        for tensor in net.state_dict().values():
            if isinstance(tensor, Tensor):
                here = tensor.to(runtime.device).contiguous()
                dist.broadcast(here, src=k % runtime.world)
                tensor.copy_(here)
