"""Run the deterministic beginning of a network once for all samples.

Only where that is exact: the leading children of a `Sequential`, or a submodule that the user
names. Expanding rows inside a foreign forward would break residual connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from leanbayes.errors import ConfigError
from leanbayes.layers.base import Host
from leanbayes.model import BayesianModel
from leanbayes.plan import MEAN, Plan, Run, call, count_rows, fold


def sequential_run(model: BayesianModel, inputs: Any) -> Run | None:
    """Split a Sequential before its first random child; None where there is nothing to gain."""
    net = model.net
    if not isinstance(net, nn.Sequential) or _is_intercepted(net):
        return None
    children = list(net)  # `children()` would name a module that stands at two places once
    first = next((i for i, child in enumerate(children) if _is_random(child)), len(children))
    if first == 0 or not isinstance(inputs, Tensor):
        return None
    features = inputs
    model.enter(MEAN, inputs.shape[0])
    for child in children[:first]:
        features = child(features)

    def run(plan: Plan, samples: int) -> Any:
        x = fold(features, samples)
        model.enter(plan, count_rows((x,), {}))
        for child in children[first:]:
            x = child(x)
        return x

    return run


def trunk_run(model: BayesianModel, inputs: Any, trunk: str) -> Run:
    """Run the named submodule once and hand its output, repeated, to the rest of the network."""
    module = _trunk(model, trunk)
    features = _features(model, inputs, module, trunk)

    def run(plan: Plan, samples: int) -> Any:
        with _answering(module, fold(features, samples)):
            return call(model, fold(inputs, samples), plan=plan)

    return run


def check_same(fast: Tensor, full: Tensor, trunk: str) -> None:
    """The pass with the remembered trunk must equal the full pass."""
    if not torch.allclose(fast, full, rtol=1e-3, atol=1e-4 * float(full.abs().max())):
        raise ConfigError(
            f"running '{trunk}' once changes the result by up to "
            f"{float((fast - full).abs().max()):.3g}: something random comes before it, or it is "
            "used in another way. Predict without trunk="
        )


def _trunk(model: BayesianModel, trunk: str) -> nn.Module:
    try:
        module = model.net.get_submodule(trunk)
    except AttributeError as error:
        names = [name for name, _ in model.net.named_children()]
        raise ConfigError(
            f"the network has no submodule '{trunk}'; its children: {names}"
        ) from error
    if _is_random(module):
        raise ConfigError(
            f"'{trunk}' holds random layers, so it cannot be run once for all samples"
        )
    return module


def _features(model: BayesianModel, inputs: Any, module: nn.Module, trunk: str) -> Any:
    seen: list[Any] = []
    handle = module.register_forward_hook(lambda _m, _i, output: seen.append(output))
    try:
        call(model, inputs, plan=MEAN)
    finally:
        handle.remove()
    if len(seen) != 1:
        raise ConfigError(f"'{trunk}' runs {len(seen)} times in a pass; expected once")
    return seen[0]


@contextmanager
def _answering(module: nn.Module, output: Any) -> Iterator[None]:
    """Let a module answer with a given output; a `forward` of this very object comes back."""
    own = module.__dict__.get("forward")
    module.forward = lambda *_, **__: output
    try:
        yield
    finally:
        del module.forward
        if own is not None:
            module.forward = own


def _is_random(module: nn.Module) -> bool:
    return any(isinstance(m, Host) and len(m.slots) for m in module.modules())


def _is_intercepted(net: nn.Sequential) -> bool:
    """True where a pass is more than its children one after another."""
    own = type(net).forward is not nn.Sequential.forward or "forward" in net.__dict__
    return own or bool(net._forward_hooks or net._forward_pre_hooks)
