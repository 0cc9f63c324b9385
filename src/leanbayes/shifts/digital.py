"""What processing does: contrast, saturation, elastic warps, large pixels, JPEG."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from leanbayes.degrade import gaussian_kernel
from leanbayes.errors import ConfigError
from leanbayes.jpeg import jpeg
from leanbayes.shifts.draws import Draws
from leanbayes.shifts.levels import rounded
from leanbayes.shifts.strengths import Strength


def contrast(images: Tensor, strength: Strength, draws: Draws) -> Tensor:  # noqa: ARG001
    """`(x - m) * share + m`, m the mean of the image's channel."""
    means = images.mean((2, 3), keepdim=True)
    return (images - means) * strength[0] + means


def saturate(images: Tensor, strength: Strength, draws: Draws) -> Tensor:  # noqa: ARG001
    """The saturation S becomes `S * factor + more`, within 0 and 1; hue and value V stay.

    So `V - x` of every channel grows by the factor S' / S. Grey has the hue of red.
    """
    if images.shape[1] != 3:
        raise ConfigError("saturate needs images of 3 channels; found grey ones, leave it out")
    factor, more = strength
    value = images.amax(1, keepdim=True)
    spread = value - images.amin(1, keepdim=True)
    saturation = spread / value.clamp_min(1e-6)
    wanted = (saturation * factor + more).clamp(0, 1)
    coloured = value - (value - images) * (wanted / saturation.clamp_min(1e-6))
    red = value * (1 - wanted * images.new_tensor([0, 1, 1]).reshape(1, 3, 1, 1))
    return torch.where(spread > 1e-6, coloured, red)


def pixelate(images: Tensor, strength: Strength, draws: Draws) -> Tensor:  # noqa: ARG001
    """Means over boxes that leave `share` of the sides, then each box as one large pixel."""
    (share,) = strength
    small = [int(side * share) for side in images.shape[2:]]
    return _resized(_resized(images, small), list(images.shape[2:]))


def _resized(images: Tensor, size: list[int]) -> Tensor:
    """Columns, then rows, each rounded to 8 bits."""
    pairs = zip(images.shape[2:], size, strict=True)
    rows, columns = (box_means(old, new).to(images) for old, new in pairs)
    return rounded(rows @ rounded(images @ columns.T))


def box_means(old: int, new: int) -> Tensor:
    """The matrix [new, old] that takes the mean of all old pixels whose centre lies in a new one.

    A new pixel that is smaller than an old one takes the value of the old one around it.
    """
    ratio = old / new
    width = max(ratio, 1.0)
    centres = (torch.arange(new, dtype=torch.float64) + 0.5) * ratio
    pixels = torch.arange(old, dtype=torch.float64)
    # A centre on the border of two falls to the left one; by Pillow's arithmetic, as it may round.
    start, stop = ((centres + edge * width + 0.5).floor()[:, None] for edge in (-0.5, 0.5))
    distance = (pixels - centres[:, None] + 0.5) * (1 / width)
    within = (pixels >= start) & (pixels < stop)
    inside = (within & (distance > -0.5) & (distance <= 0.5)).double()
    return inside / inside.sum(1, keepdim=True)


def jpeg_compression(images: Tensor, strength: Strength, draws: Draws) -> Tensor:  # noqa: ARG001
    """A JPEG of the given quality, chrominance at half the resolution."""
    quality = torch.full((len(images),), float(strength[0]), device=images.device)
    return jpeg(images, quality, subsample=True)


def elastic_transform(images: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """A random affine map, then a smooth random displacement.

    The affine map moves three points around the middle by up to `jitter`. Displacements are
    uniform numbers under a Gaussian of `sigma`, times `alpha`. All are shares of the side.
    """
    side = min(images.shape[2:])
    alpha, sigma, jitter = (side * share for share in strength)
    warped = _affine(images, jitter, draws)
    noise = draws.uniform(2, *images.shape[2:], low=-1.0, high=1.0)
    rows, columns = (mirrored_smoothing(n, sigma).to(images) for n in images.shape[2:])
    moves = alpha * (rows @ noise @ columns.T)
    y, x = _places(images)
    return _sampled(warped, y + moves[:, 0], x + moves[:, 1], mirror_between=True)


def _affine(images: Tensor, jitter: float, draws: Draws) -> Tensor:
    """Sample at the places that the map takes to every pixel; edge pixels are the mirrors."""
    height, width = images.shape[2:]
    third = min(height, width) // 3
    corners = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    before = corners * third + torch.tensor([width // 2, height // 2], dtype=torch.float64)
    moves = [draws.numbers(-jitter, jitter) for _ in range(6)]
    after = before + torch.tensor(moves, dtype=torch.float64).T.reshape(-1, 3, 2)
    # Rows (x, y, 1) of the moved points times the map give the points they came from.
    moved = torch.cat([after, torch.ones_like(after[..., :1])], 2)
    back = torch.linalg.solve(moved, before.expand_as(after)).to(images)
    y, x = _places(images)
    along = [x * back[:, 0, k, None, None] + y * back[:, 1, k, None, None] for k in range(2)]
    x, y = (part + back[:, 2, k, None, None] for k, part in enumerate(along))
    return _sampled(images, y, x, mirror_between=False)


def _places(images: Tensor) -> tuple[Tensor, Tensor]:
    height, width = images.shape[2:]
    rows = torch.arange(height, device=images.device, dtype=images.dtype)
    columns = torch.arange(width, device=images.device, dtype=images.dtype)
    return rows[:, None].expand(height, width), columns.expand(height, width)


def _sampled(images: Tensor, y: Tensor, x: Tensor, *, mirror_between: bool) -> Tensor:
    """Bilinear values at places in pixels; mirrors lie on the edge pixels or just outside them."""
    height, width = images.shape[2:]
    if mirror_between:
        grid = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], -1)
    else:
        grid = torch.stack([2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1], -1)
    return grid_sample(images, grid, padding_mode="reflection", align_corners=not mirror_between)


def mirrored_smoothing(size: int, sigma: float) -> Tensor:
    """The matrix [size, size] of a Gaussian cut off at 3 sigma, edges mirrored (dcba|abcd|dcba)."""
    radius = int(3 * sigma + 0.5)
    weights = gaussian_kernel(torch.tensor([sigma], dtype=torch.float64), radius)[0]
    offsets = torch.arange(-radius, radius + 1)
    place = (torch.arange(size)[:, None] + offsets) % (2 * size)
    place = torch.where(place < size, place, 2 * size - 1 - place)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return matrix.scatter_add_(1, place, weights.expand(size, -1).contiguous())
