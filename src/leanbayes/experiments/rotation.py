"""Images turned by an angle, on whatever device they lie."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample


def rotated(x: Tensor, degrees: float, background: float = 0.0) -> Tensor:
    """Square images [N, C, S, S] turned counter-clockwise about their middle, bilinearly.

    Args:
        x: Images.
        degrees: The angle.
        background: What comes in at the corners: the value of a black pixel.

    Example:
        >>> x = torch.arange(4.0).reshape(1, 1, 2, 2)
        >>> rotated(x, 90).round().flatten().tolist()
        [1.0, 3.0, 0.0, 2.0]
    """
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # From places of the output to those of the input, with rows downwards.
    turn = torch.tensor([[cos, -sin, 0.0], [sin, cos, 0.0]], dtype=x.dtype, device=x.device)
    grid = affine_grid(turn.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    return grid_sample(x - background, grid, align_corners=False) + background
