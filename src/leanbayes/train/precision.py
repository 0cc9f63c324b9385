"""Number formats of a step: autocast, and for float16 a scaled loss."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from leanbayes.errors import ConfigError

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """Runs passes in a format; parameters, posteriors and the KL stay float32.

    In float16 small gradients would become 0, so the loss is scaled up. The gradients are unscaled
    before the optimiser's step begins, and with it before the KL edit (a hook of the step): a KL
    added to scaled gradients would shrink with the scale.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        if name not in PRECISIONS:
            raise ConfigError(f"precision is one of {', '.join(PRECISIONS)}; found {name!r}")
        self._dtype = PRECISIONS[name]
        self._device = device.type
        self._scaler = torch.amp.GradScaler(device.type) if name == "fp16" else None
        self._is_unscaled = False

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of a forward pass."""
        if self._dtype is None:
            return nullcontext()
        return torch.autocast(self._device, self._dtype)

    def backward(self, loss: Tensor) -> None:
        """Gradients of the loss, scaled in float16."""
        scaled = loss if self._scaler is None else self._scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """True gradients, for a norm or a clip; once a step, further calls do nothing."""
        if self._scaler is not None and not self._is_unscaled:
            self._scaler.unscale_(optimizer)
            self._is_unscaled = True

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Step; False where the scaled gradients had overflowed and the step was left out."""
        if self._scaler is None:
            optimizer.step()
            return True
        self.unscale(optimizer)  # a fused optimiser would do it inside its step, after the KL edit
        before = self._scaler.get_scale()
        self._scaler.step(optimizer)
        self._scaler.update()
        self._is_unscaled = False
        return self._scaler.get_scale() >= before

    def state(self) -> dict[str, Any]:
        """Scale and count of good steps; empty without a scaler."""
        return {} if self._scaler is None else self._scaler.state_dict()

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on with a saved scale; a run that had none starts with a fresh one."""
        if self._scaler is not None and state:
            self._scaler.load_state_dict(state)


class Determinism:
    """torch's switches for repeatable kernels, put back as they were."""

    def __init__(self) -> None:
        self._before = (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.backends.cudnn.benchmark,
        )
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False

    def undo(self) -> None:
        """Restore the switches."""
        enabled, warn_only, benchmark = self._before
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
        torch.backends.cudnn.benchmark = benchmark
