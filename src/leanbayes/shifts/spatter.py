"""Spatter: drops of water or mud on the lens."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from leanbayes.shifts.blurs import smooth
from leanbayes.shifts.colour import like_channels
from leanbayes.shifts.draws import Draws
from leanbayes.shifts.strengths import Strength

WATER = (175, 238, 238)
MUD = (63, 42, 20)
RELIEF = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
FAR = 20  # pixels, where the distance to an edge stops to count


def spatter(images: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """Drops where smoothed noise passes a threshold: water shines, mud (from severity 4) covers."""
    mean, std, sigma, threshold, amount, is_mud = strength
    # In float64: what lies on which side of a threshold must not depend on the device.
    liquid = smooth(mean + std * draws.normal(1, *images.shape[2:]).double(), sigma)
    if is_mud:
        cover = smooth((liquid > threshold).double(), amount)
        cover = torch.where(cover < 0.8, 0, cover).to(images)
        return images * (1 - cover) + cover * _colour(MUD, images)
    levels = (torch.where(liquid < threshold, 0, liquid).clamp(0, 1) * 255).floor().to(images)
    shine = levels * relief(levels)
    shine = shine / shine.amax((1, 2, 3), keepdim=True).clamp_min(1e-6)
    return images + amount * shine * _colour(WATER, images)


def relief(levels: Tensor) -> Tensor:
    """Light on drops from one side, in levels: slopes of the distance to the drops' edges."""
    near = distance_to(edges(levels)).clamp_max(FAR)
    # A little more keeps whole means whole on every device.
    height = equalised((_mean3(near) + 1e-4).floor())
    lit = _filtered(height, torch.tensor(RELIEF)).clamp(0, 255)
    return (_mean3(lit) + 0.5).floor()


def edges(levels: Tensor, low: float = 50.0, high: float = 150.0) -> Tensor:
    """Canny's edges: ridges of the Sobel gradient above `low` that hang together with one > `high`.

    The size of the gradient is |gx| + |gy|; a ridge is higher than its neighbours across it, of
    which the one to the right or below may be equal.
    """
    sobel = torch.tensor([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    padded = F.pad(levels, (1,) * 4, mode="replicate")
    gx, gy = (_filtered(padded, k)[..., 1:-1, 1:-1] for k in (sobel, sobel.T))
    size = gx.abs() + gy.abs()
    ridge = _is_ridge(size, gx, gy) & (size > low)
    kept = ridge & (size > high)
    while True:
        grown = (F.max_pool2d(kept.float(), 3, 1, 1) > 0) & ridge
        if bool((grown == kept).all()):
            return kept
        kept = grown


def _is_ridge(size: Tensor, gx: Tensor, gy: Tensor) -> Tensor:
    """Whether the gradient is largest along its own direction, of four."""
    flat, steep = 0.41421356 * gx.abs(), 2.41421356 * gx.abs()  # tangents of 22.5, 67.5 degrees
    across, down = gy.abs() < flat, gy.abs() > steep
    falling = gx * gy >= 0
    padded = F.pad(size, (1,) * 4)
    height, width = size.shape[2:]

    def neighbour(dy: int, dx: int) -> Tensor:
        return padded[..., 1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    def between(dy: int, dx: int) -> Tensor:
        return (size > neighbour(-dy, -dx)) & (size >= neighbour(dy, dx))

    def above(dx: int) -> Tensor:
        return (size > neighbour(-1, -dx)) & (size > neighbour(1, dx))

    diagonal = torch.where(falling, above(1), above(-1))
    return torch.where(across, between(0, 1), torch.where(down, between(1, 0), diagonal))


def distance_to(marks: Tensor) -> Tensor:
    """Length of the way to the next mark, exact up to FAR.

    Steps aside count 1, diagonal ones 1.4 and those of a chess knight 2.1969 (Borgefors, 1986), as
    in the benchmark. First along columns, then the least over columns aside: a way is never shorter
    to a mark that is farther along the column.
    """
    columns = _least(torch.where(marks, 0.0, 2.0 * FAR), 2, torch.add)
    return _least(columns, 3, _way)


def _way(down: Tensor, across: int) -> Tensor:
    """Length of the shortest way over `down` rows and `across` columns."""
    long, short = down.clamp_min(across), down.clamp_max(across)
    knights = torch.minimum(short, long - short)
    diagonals = short - knights
    return 2.1969 * knights + 1.4 * diagonals + (long - 2 * knights - diagonals)


def _least(values: Tensor, dim: int, cost: Callable[[Tensor, int], Tensor]) -> Tensor:
    """The least `cost(values at a step aside, step)` over steps up to FAR both ways."""
    best, size = values.clone(), values.shape[dim]
    for step in range(1, min(FAR, size - 1) + 1):
        for to, at in ((0, step), (step, 0)):
            place = best.narrow(dim, to, size - step)
            there = cost(values.narrow(dim, at, size - step), step)
            place.copy_(torch.minimum(place, there))
    return best


def equalised(levels: Tensor) -> Tensor:
    """Whole levels 0 to 255 after equalisation of each image's histogram.

    Level v becomes `255 * (pixels in (least, v]) / (pixels above the least)`, rounded; an image of
    one level stays.
    """
    flat = levels.flatten(1).long()
    counts = torch.zeros(len(flat), 256, device=levels.device, dtype=torch.float64)
    counts.scatter_add_(1, flat, torch.ones_like(flat, dtype=torch.float64))
    least = counts.gather(1, flat.amin(1, keepdim=True))
    above = flat.shape[1] - least
    table = (255 * (counts.cumsum(1) - least) / above.clamp_min(1)).round().clamp(0, 255)
    table = torch.where(above > 0, table, torch.arange(256, device=levels.device))
    return table.gather(1, flat).to(levels.dtype).reshape(levels.shape)


def _mean3(values: Tensor) -> Tensor:
    """Means of 3 x 3 pixels; edge pixels are the mirrors."""
    return F.avg_pool2d(F.pad(values, (1,) * 4, mode="reflect"), 3, 1)


def _filtered(values: Tensor, kernel: Tensor) -> Tensor:
    """Correlation with a kernel of 3 x 3; edge pixels are the mirrors."""
    weight = kernel.to(values)[None, None]
    with torch.autocast(values.device.type, enabled=False):
        return F.conv2d(F.pad(values, (1,) * 4, mode="reflect"), weight)


def _colour(levels: tuple[int, int, int], images: Tensor) -> Tensor:
    colour = images.new_tensor(levels).reshape(1, 3, 1, 1) / 255
    return like_channels(colour, images)
