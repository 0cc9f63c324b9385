"""The exact average over the copies of an output layer, instead of drawing one of them.

The network in front of the output runs once a sample; its K heads then all predict from the same
features. Averaging over the head is integrated out, so the variance falls (Rao and Blackwell), for
the price of K small layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from leanbayes.errors import ConfigError
from leanbayes.layers.base import Host
from leanbayes.likelihood import tensor_of
from leanbayes.model import BayesianModel, is_sharded, reshard, sharded_modules
from leanbayes.noise import KeyedNoise
from leanbayes.plan import Plan, Run
from leanbayes.posteriors.bank import Bank


class ChosenCopy(KeyedNoise):
    """Noise that makes every index of a bank of K copies point to copy k."""

    def __init__(self, k: int, copies: int) -> None:
        super().__init__(0, range(1))
        self.value = (k + 0.5) / copies

    def number(self, key: str, sample: int) -> float:  # noqa: ARG002
        """The middle of the k-th of K equal parts of [0, 1)."""
        return self.value

    def uniform(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:  # noqa: ARG002
        """The same number for every draw."""
        return like.new_full((draws, *shape), self.value)

    def normal(self, key: str, draws: int, shape: Sequence[int], like: Tensor) -> Tensor:  # noqa: ARG002
        """No head asks for it."""
        raise TypeError("only the index of a bank can be enumerated")


def output_host(model: BayesianModel) -> Host:
    """The output layer; an error unless all of its slots are banks under one index a layer."""
    name = model.report.output or ""
    host = model.net.get_submodule(name)
    banks = list(host.slots.values()) if isinstance(host, Host) else []
    if not banks or not all(isinstance(q, Bank) and q.index == "layer" for q in banks):
        raise ConfigError(
            f"the output layer '{name}' holds no bank with an index a layer, so there is nothing "
            "to enumerate: write lb.Patching(where='norm+output', exact_output=True) with "
            "scope='layer', and convert with an example"
        )
    assert isinstance(host, Host)
    return host


def heads_of(model: BayesianModel) -> int:
    """How many heads every sample averages; 1 where they are drawn."""
    if not model.method.enumerates_output:
        return 1
    bank = next(iter(output_host(model).slots.values()))
    assert isinstance(bank, Bank)
    return bank.copies


def enumerated(model: BayesianModel, run: Run, heads: int) -> Run:
    """The same run with every head: rows [samples, heads, R] folded into dim 0."""
    host = output_host(model)

    def run_all(plan: Plan, samples: int) -> Tensor:
        args, kwargs = _captured(host, run, plan, samples)
        outputs = []
        with _gathered(model, host):
            for k in range(heads):
                with model.under(replace(plan, noise=ChosenCopy(k, heads))):
                    outputs.append(host(*args, **kwargs))
        every = torch.stack(outputs)  # [heads, samples * R, ...]
        by_sample = every.reshape(heads, samples, -1, *every.shape[2:]).transpose(0, 1)
        return by_sample.flatten(0, 2)

    return run_all


@contextmanager
def _gathered(model: BayesianModel, host: Host) -> Iterator[None]:
    """Shards of FSDP2 that hold the layer are whole: a pass has put them back already."""
    above = [m for m in sharded_modules(model) if any(part is host for part in m.modules())]
    for module in above if is_sharded(model) else ():
        module.unshard()
    yield
    reshard(model)


def _captured(host: Host, run: Run, plan: Plan, samples: int) -> tuple[Any, Any]:
    """Arguments and keywords of the output layer in a pass whose result it is."""
    seen: list[tuple[Any, Any, Any]] = []
    handle = host.register_forward_hook(lambda _m, *call: seen.append(call), with_kwargs=True)
    try:
        result = tensor_of(run(plan, samples))
    finally:
        handle.remove()
    if len(seen) != 1 or seen[0][2] is not result:
        raise ConfigError(
            "the network changes what its output layer gives, or calls it more than once, so its "
            "heads cannot be enumerated: write exact_output=False"
        )
    return seen[0][:2]
