"""Blurs: out of focus, behind rough glass, by motion, by zoom, Gaussian."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from leanbayes.degrade import blur, gaussian_kernel
from leanbayes.shifts.draws import Draws
from leanbayes.shifts.geometry import streaked, zoomed
from leanbayes.shifts.levels import whole_levels
from leanbayes.shifts.strengths import Strength


def gaussian_blur(images: Tensor, strength: Strength, draws: Draws) -> Tensor:  # noqa: ARG001
    """A Gaussian of the given standard deviation, cut off at four of them, edges repeated."""
    return smooth(images, strength[0])


def smooth(images: Tensor, sigma: float) -> Tensor:
    """`blur` with one standard deviation for all images and channels, of any number."""
    rows = images.reshape(-1, 1, *images.shape[2:])
    sigmas = torch.full((len(rows),), sigma, device=images.device)
    return blur(rows, sigmas, truncate=4.0).reshape(images.shape)


def defocus_blur(images: Tensor, strength: Strength, draws: Draws) -> Tensor:  # noqa: ARG001
    """A disc of the given radius, itself smoothed by a small Gaussian; edges are mirrored."""
    radius, alias = strength
    kernel = disc(radius, alias).to(images)
    reach = kernel.shape[0] // 2
    rows = F.pad(images.reshape(-1, 1, *images.shape[2:]), (reach,) * 4, mode="reflect")
    with torch.autocast(images.device.type, enabled=False):
        return F.conv2d(rows, kernel[None, None]).reshape(images.shape)


def disc(radius: float, alias: float) -> Tensor:
    """Equal weights within `radius`, under a Gaussian of 3 x 3 (5 x 5 where radius > 8) pixels."""
    side, half = (1, 8) if radius <= 8 else (2, math.ceil(radius))
    places = torch.arange(-half, half + 1, dtype=torch.float64)
    weights = (places[:, None].square() + places.square() <= radius**2).double()
    small = gaussian_kernel(torch.tensor([alias], dtype=torch.float64), side)[0]
    mirrored = F.pad((weights / weights.sum())[None, None], (side,) * 4, mode="reflect")
    kernel = F.conv2d(mirrored, torch.outer(small, small)[None, None])[0, 0]
    empty = max(0, half - math.floor(radius) - side)
    return kernel[empty : len(kernel) - empty, empty : len(kernel) - empty]


def glass_blur(images: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """Blur, pixels that take the value of a near one in turn, and blur again."""
    sigma, reach, rounds = strength[0], int(strength[1]), int(strength[2])
    x = whole_levels(smooth(images, sigma))
    for _ in range(rounds):
        x = scattered(x, reach, draws.whole(-reach, reach, 2, *images.shape[2:]))
    return smooth(x, sigma)


def scattered(images: Tensor, reach: int, offsets: Tensor) -> Tensor:
    """Pixels from the last to the first take the value that lies there at an offset, [B, 2, H, W].

    A pixel that looks at a later one finds what that one took before: a chain. All chains are
    followed at once by doubling, so that the result is that of the loop over pixels. (The
    benchmark writes an exchange, but its two sides share memory: only one of them changes.)
    Pixels nearer than `reach` to the edge stay.
    """
    batch, channels, height, width = images.shape
    size = height * width
    place = torch.arange(size, device=images.device)
    row, column = place // width, place % width
    moves = (row > reach) & (row <= height - reach) & (column > reach) & (column <= width - reach)
    source = place + (offsets[:, 0] * width + offsets[:, 1]).reshape(batch, size)
    source = torch.where(moves, source, place)
    # Places below `size` are values before the round, and above it those after.
    later = moves[source] & (source > place)
    after = torch.where(later, source + size, source)
    chain = torch.cat([place.expand(batch, size), after], 1)
    for _ in range(math.ceil(math.log2(size)) + 1):
        chain = chain.gather(1, chain)
    taken = chain[:, size:, None].transpose(1, 2).expand(-1, channels, -1)
    return images.flatten(2).gather(2, taken).reshape(images.shape)


def motion_blur(images: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """A streak along a direction within 45 degrees of the rows."""
    radius, sigma = strength
    return streaked(images, int(radius), sigma, draws.numbers(-45, 45))


def zoom_blur(images: Tensor, strength: Strength, draws: Draws) -> Tensor:  # noqa: ARG001
    """The mean of the image and of `count` zooms into it, from 1 on by `step`."""
    count, step = int(strength[0]), strength[1]
    total = images.clone()
    for k in range(count):
        total += zoomed(images, 1 + k * step)
    return total / (count + 1)
