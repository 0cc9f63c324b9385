"""The state of a network in which it predicts: evaluation mode, nothing compiled, no gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from leanbayes.model import BayesianModel, is_sharded, reshard, unwrap


@contextmanager
def predicting(model: BayesianModel) -> Iterator[None]:
    """Evaluation mode without gradients; every module's own mode comes back."""
    with evaluating(model), torch.no_grad() if is_sharded(model) else torch.inference_mode():
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, of a plain network too; every module's own mode comes back."""
    modes = [(module, module.training) for module in model.modules()]
    scope = model.scope if isinstance(model, BayesianModel) else None
    before = None if scope is None else scope.state()
    if any(training for _, training in modes):
        model.eval()
    try:
        # Compiled blocks run eagerly: keys in a graph would cost one a block.
        with eager(m for m, _ in modes if m is not model or scope is None):
            yield
    finally:
        # A backward pass under way may recompute its blocks; and noise is not to outlive the call.
        if scope is not None and before is not None:
            scope.recall(before)
        reshard(model)
        for module, training in modes:
            if module.training != training:
                module.training = training


def mixes_rows(net: nn.Module) -> bool:
    """True where a BatchNorm has no running statistics: rows of a pass then share theirs."""
    return mixing(net.modules())


def mixing(modules: Iterable[nn.Module]) -> bool:
    """The same of modules that were listed before."""
    kind = nn.modules.batchnorm._BatchNorm
    return any(isinstance(m, kind) and m.running_mean is None for m in modules)


def is_compiled_in_place(module: nn.Module) -> bool:
    """True for `module.compile()` and for a `torch.compile(module)` inside a network."""
    # In the dict of the object: `hasattr` raises and catches an error for every module without.
    return module._compiled_call_impl is not None or "_orig_mod" in module._modules


def uncompiled(model: nn.Module) -> AbstractContextManager[Any]:
    """Within it, what is compiled in the model runs eagerly."""
    return eager(model.modules())


def eager(modules: Iterable[nn.Module]) -> AbstractContextManager[Any]:
    """Within it, those modules that are compiled run eagerly."""
    found = any(is_compiled_in_place(module) for module in modules)
    return torch.compiler.set_stance("force_eager") if found else nullcontext()


def is_compiled(model: nn.Module) -> bool:
    """True where torch.compile acts on the whole model: in place, or as a wrapper around it."""
    if is_compiled_in_place(unwrap(model)):
        return True
    inner: Any = model
    while inner is not None and not isinstance(inner, BayesianModel):
        if hasattr(inner, "_orig_mod"):
            return True
        inner = getattr(inner, "module", None)
    return False
