"""Positive scales from unconstrained numbers."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F


def softplus(rho: Tensor) -> Tensor:
    """`ln(1 + exp(rho))`."""
    return F.softplus(rho)


def inverse_softplus(scale: float) -> float:
    """The rho whose softplus is `scale`; 0 gives a scale that vanishes."""
    if scale <= 0:
        return -60.0
    return scale + math.log(-math.expm1(-scale))
