"""Where a network lies."""

from __future__ import annotations

import torch
from torch import nn


def device_of(net: nn.Module) -> torch.device:
    """The device of the parameters; the CPU where there are none."""
    return next((p.device for p in net.parameters()), torch.device("cpu"))
