"""One flag for all numbers of a step, read a step later: on a GPU nobody has to wait for it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Sent(NamedTuple):
    """A step whose flag is on its way, with what tells the loss from the data afterwards."""

    step: int
    loss: Tensor
    batch: Any


class LateFlag:
    """Is 1 once any number was infinite or none.

    Small steps of a GPU wait for the host, so this is a handful of calls: one kernel looks at all
    tensors (that of loss scalers, with a scale of 1), one copy brings its flag to pinned memory,
    one event says when it is there. The flag is never lowered but by `read`.
    """

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._flag, self._one = torch.zeros((), device=device), torch.ones((), device=device)
        self._host = torch.zeros((), pin_memory=on_gpu)
        self._seen = self._host.numpy()  # the same memory, read without a call of torch
        self._event = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]
        self._sent: Sent | None = None

    def send(self, sent: Sent, numbers: list[Tensor], world: int) -> bool:
        """Look at all numbers; False, and nothing is sent, if one of them is no plain tensor."""
        try:
            torch._amp_foreach_non_finite_check_and_unscale_(numbers, self._flag, self._one)
        except RuntimeError:
            return False
        if world > 1:
            torch.distributed.all_reduce(self._flag)
        self._host.copy_(self._flag, non_blocking=True)
        if self._event is not None:
            self._event.record()
        self._sent = sent
        return True

    def read(self) -> Sent | None:
        """The step that was sent last, if it was broken on any process; each is told once."""
        sent, self._sent = self._sent, None
        if sent is None:
            return None
        if self._event is not None:
            self._event.synchronize()
        if not self._seen:
            return None
        self._flag.zero_()
        return sent
