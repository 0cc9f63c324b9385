"""Moves of pixels that several corruptions use: zoom into the middle, streaks, turns."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

from leanbayes.errors import ConfigError


def rotate(images: Tensor, degrees: float, background: float = 0.0) -> Tensor:
    """Images [B, C, H, W] turned counter-clockwise about their middle, bilinearly.

    Args:
        images: Images in any range.
        degrees: The angle.
        background: What comes in at the corners: the value of a black pixel.

    Example:
        >>> x = torch.arange(4.0).reshape(1, 1, 2, 2)
        >>> rotate(x, 90).round().flatten().tolist()
        [1.0, 3.0, 0.0, 2.0]
    """
    if images.dim() != 4 or not math.isfinite(degrees):
        raise ConfigError(
            "expected images [B, C, H, W] and a finite angle in degrees; found shape "
            f"{tuple(images.shape)} and {degrees!r}"
        )
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    height, width = images.shape[2:]
    # From places of the output to those of the input, rows downwards, both sides from -1 to 1.
    turn = images.new_tensor([[cos, -sin * height / width, 0], [sin * width / height, cos, 0]])
    grid = affine_grid(turn.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return grid_sample(images - background, grid, align_corners=False) + background


def zoomed(images: Tensor, factor: float) -> Tensor:
    """The middle of the images, enlarged bilinearly to their size.

    A crop of `ceil(side / factor)` pixels grows to `round(crop * factor)`, corner on corner, and
    what is too much is cut off.
    """
    sides = images.shape[2:]
    crops = [math.ceil(side / factor) for side in sides]
    top, left = ((a - b) // 2 for a, b in zip(sides, crops, strict=True))
    middle = images[..., top : top + crops[0], left : left + crops[1]]
    size = [max(side, round(crop * factor)) for side, crop in zip(sides, crops, strict=True)]
    large = interpolate(middle, size=size, mode="bilinear", align_corners=True)
    top, left = ((a - b) // 2 for a, b in zip(size, sides, strict=True))
    return large[..., top : top + sides[0], left : left + sides[1]]


def streaked(images: Tensor, radius: int, sigma: float, degrees: list[float]) -> Tensor:
    """Motion blur: `sum_i w_i x(p + i d)`, w one half of a Gaussian over 2 radius + 1 steps.

    d is the direction of each image's angle; steps end on the nearest pixel, edges are repeated.
    One gather a step.
    """
    batch, channels, height, width = images.shape
    steps = range(2 * radius + 1)
    weights = [math.exp(-0.5 * (step / sigma) ** 2) for step in steps]
    rows = torch.arange(height, device=images.device)[None, :, None]
    columns = torch.arange(width, device=images.device)[None, None, :]
    flat, result = images.flatten(2), torch.zeros_like(images)
    for step, weight in zip(steps, weights, strict=True):
        down, right = _offsets(step, degrees).to(images.device)
        y = (rows + down[:, None, None]).clamp(0, height - 1)
        x = (columns + right[:, None, None]).clamp(0, width - 1)
        place = (y * width + x).reshape(batch, 1, -1).expand(-1, channels, -1)
        result += weight * flat.gather(2, place).reshape(images.shape)
    return result / sum(weights)


def _offsets(step: int, degrees: list[float]) -> Tensor:
    """Steps down and to the right in whole pixels, halves towards 0 from below, [2, B]."""
    angles = [math.radians(angle) for angle in degrees]
    down = [math.ceil(step * math.sin(angle) - 0.5) for angle in angles]
    right = [math.ceil(step * math.cos(angle) - 0.5) for angle in angles]
    return torch.tensor([down, right])
