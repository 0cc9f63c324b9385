"""Textures made of noise: clouds for fog, ice for frost."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leanbayes.shifts.draws import Draws
from leanbayes.shifts.geometry import streaked

# Mean colour and spread, in 255ths, of the five photographs of ice that the benchmark draws from.
ICE = (
    (78, 149, 166, 18),
    (201, 205, 214, 22),
    (201, 205, 214, 22),
    (138, 153, 165, 29),
    (112, 123, 135, 43),
)


def clouds(sides: Sequence[int], decay: float, draws: Draws) -> Tensor:
    """A plasma fractal [B, 1, H, W] in [0, 1] by midpoint displacement on a torus.

    Every point is the mean of four neighbours at half the step before plus a uniform number whose
    bound falls by `decay^2` from step to step. The side is the next power of two.
    """
    size = 1 << (max(sides) - 1).bit_length()
    noise = draws.uniform(size, size, low=-1.0, high=1.0)
    field, bound, step = torch.zeros_like(noise), 1.0, size
    while step >= 2:
        _displace(field, bound * noise, step)
        step, bound = step // 2, bound / decay**2
    field = field - field.amin((1, 2), keepdim=True)
    field = field / field.amax((1, 2), keepdim=True)
    return field[:, None, : sides[0], : sides[1]]


def _displace(field: Tensor, noise: Tensor, step: int) -> None:
    """Fill the middles of squares of side `step`, then those of their sides, in place."""
    half = step // 2
    corner = field[:, ::step, ::step]
    below, right = corner.roll(-1, 1), corner.roll(-1, 2)
    middles = (corner + below + right + below.roll(-1, 2)) / 4 + noise[:, half::step, half::step]
    field[:, half::step, half::step] = middles
    across = (corner + right + middles + middles.roll(1, 1)) / 4
    field[:, ::step, half::step] = across + noise[:, ::step, half::step]
    down = (corner + below + middles + middles.roll(1, 2)) / 4
    field[:, half::step, ::step] = down + noise[:, half::step, ::step]


def ice(sides: Sequence[int], draws: Draws) -> Tensor:
    """Colour images [B, 3, H, W] of needles on clouds, in the colours of the benchmark's ice."""
    size = max(sides)
    pattern = clouds(sides, 1.3, draws)
    for _ in range(6):
        sparks = (draws.uniform(1, *sides) - 0.985).clamp_min(0)
        needles = streaked(sparks, max(3, size // 16), max(2.0, size / 32), draws.numbers(0, 360))
        pattern = pattern + 2 * needles / needles.amax((1, 2, 3), keepdim=True).clamp_min(1e-6)
    pattern = pattern - pattern.mean((1, 2, 3), keepdim=True)
    pattern = pattern / pattern.std((1, 2, 3), keepdim=True)
    kinds = pattern.new_tensor(ICE)[draws.whole(0, len(ICE))] / 255
    return (kinds[:, :3, None, None] + kinds[:, 3:, None, None] * pattern).clamp(0, 1)
