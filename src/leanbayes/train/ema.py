"""The exponential moving average of a model in training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from leanbayes.errors import CheckpointError, ConfigError
from leanbayes.model import BayesianModel, reshard
from leanbayes.ops import at_least_float32
from leanbayes.posteriors.shards import local_part, shard_like, whole


class Average:
    """Averaged parameters beside the ones in training.

    `a_n = decay * a_(n-1) + (1 - decay) * w_n` with `a_0 = w_0`, hence
    `a_n = decay^n w_0 + (1 - decay) sum_k decay^(n-k) w_k`, for every floating parameter, means and
    log standard deviations of posteriors alike (float16 and bfloat16 are averaged in float32).
    Buffers (running statistics, indices, masks) and whole-number parameters are the latest ones:
    an average of them has no meaning. Constant values stay bitwise what they are.

    Cost: one copy of the model, and about three memory accesses a parameter an update.

    Args:
        model: The model at the start; under FSDP2 after it was sharded.
        decay: Of one update, 0 <= decay < 1.

    Example:
        >>> net = nn.Linear(1, 1, bias=False)
        >>> average = Average(net.requires_grad_(False), decay=0.75)
        >>> start = net.weight.clone()
        >>> average.update(net.apply(lambda m: m.weight.add_(1)))
        >>> with average.applied(net):
        ...     round((net.weight - start).item(), 4)
        0.25
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if isinstance(decay, bool) or not 0 <= decay < 1:
            raise ConfigError(f"decay of the average must be in [0, 1), found {decay!r}")
        self.decay = float(decay)
        self.updates = 0
        reshard(model)
        averaged, latest = _tensors(model)
        with torch.no_grad():
            self._averaged = {name: _wide(tensor).clone() for name, tensor in averaged.items()}
            self._latest = {name: tensor.clone() for name, tensor in latest.items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the present values: once an optimiser step."""
        averaged, latest = self._matched(model)
        if averaged:
            values = [local_part(_wide(tensor)) for tensor in averaged.values()]
            torch._foreach_lerp_(_parts(self._averaged), values, 1 - self.decay)
        if latest:
            torch._foreach_copy_(_parts(self._latest), _parts(latest))
        self.updates += 1

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """The averages in place of the model's values; these come back bit for bit afterwards."""
        averaged, latest = self._matched(model)
        tensors = averaged | latest
        before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        try:
            self.settle(model)
            yield
        finally:
            reshard(model)
            _write(tensors, before)

    def settle(self, model: nn.Module) -> None:
        """Make the averages the model's values, for good."""
        averaged, latest = self._matched(model)
        _write(averaged, self._averaged)
        _write(latest, self._latest)

    def state(self) -> dict[str, Any]:
        """A copy of everything, on the CPU; shards are gathered, so all processes must ask."""
        return {
            "decay": self.decay,
            "updates": self.updates,
            "averaged": {name: _on_cpu(tensor) for name, tensor in self._averaged.items()},
            "latest": {name: _on_cpu(tensor) for name, tensor in self._latest.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave; nothing changes where it does not fit."""
        for own, saved in self._pairs(state):
            _check_fit(own, saved)
        for own, saved in self._pairs(state):
            _write(own, {name: shard_like(saved[name].to(t.device), t) for name, t in own.items()})
        self.updates = int(state["updates"])

    def _pairs(self, state: Mapping[str, Any]) -> list[tuple[dict[str, Tensor], dict[str, Tensor]]]:
        missing = {"averaged", "latest", "updates"} - state.keys()
        if missing:
            raise CheckpointError(f"the saved average lacks {sorted(missing)}")
        return [(self._averaged, state["averaged"]), (self._latest, state["latest"])]

    def _matched(self, model: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        reshard(model)
        averaged, latest = _tensors(model)
        strange = (averaged.keys() ^ self._averaged.keys()) | (latest.keys() ^ self._latest.keys())
        if strange:
            raise ConfigError(
                "the model has other tensors than the one whose average is kept: "
                f"{_some(strange)}. Write Average(model, decay) after every conversion and wrapping"
            )
        return averaged, latest


def _tensors(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What is averaged, and what is copied, each in a fixed order."""
    parameters = _own(model, model.named_parameters())
    averaged: dict[str, Tensor] = {k: p for k, p in parameters.items() if p.is_floating_point()}
    latest: dict[str, Tensor] = {k: p for k, p in parameters.items() if k not in averaged}
    return averaged, latest | _own(model, model.named_buffers())


def _own(model: nn.Module, named: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Without a likelihood kept with a model: which one a run trains is the run's affair."""
    strange = "likelihood." if isinstance(model, BayesianModel) else None
    return dict(sorted((k, t) for k, t in named if strange is None or not k.startswith(strange)))


def _wide(tensor: Tensor) -> Tensor:
    """Half precision would swallow the small steps of an average."""
    return at_least_float32(tensor.detach())


def _parts(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """What this process holds of each."""
    return [local_part(tensor) for tensor in tensors.values()]


@torch.no_grad()
def _write(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        tensor.copy_(values[name])


def _on_cpu(tensor: Tensor) -> Tensor:
    return whole(tensor).to("cpu", copy=True)


def _check_fit(own: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    strange = own.keys() ^ saved.keys()
    if strange:
        raise CheckpointError(
            f"the saved average is of another model: {_some(strange)} only on one side"
        )
    for name, tensor in own.items():
        if tensor.shape != saved[name].shape or tensor.dtype != saved[name].dtype:
            raise CheckpointError(
                f"the saved average of '{name}' is {saved[name].dtype} "
                f"{tuple(saved[name].shape)}; expected {tensor.dtype} {tuple(tensor.shape)}"
            )


def _some(names: set[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in sorted(names)[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")
