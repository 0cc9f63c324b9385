"""Inputs out of distribution: images under noise, blur and JPEG, without files or codecs.

Images are [B, C, H, W] with pixels in [0, 1]; only `ood_inputs` knows of normalisation. Draws come
from the global generator. No gradients: these make inputs, not layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from leanbayes.errors import ConfigError
from leanbayes.ops import at_least_float32

Range = tuple[float, float]

# ITU-T T.81, Annex K: the tables of luminance and chrominance at quality 50.
LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
)
# JFIF: Y, Cb, Cr from R, G, B.
YCBCR = (
    (0.299, 0.587, 0.114),
    (-0.168736, -0.331264, 0.5),
    (0.5, -0.418688, -0.081312),
)


@torch.no_grad()
def ood_inputs(
    x: Tensor,
    eps: float = 0.031,
    images: Tensor | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
) -> Tensor:
    """OOD inputs from training images: noise of U(-eps, eps), clamped to [0, 1] in pixel space.

    With `images`, the second half of the rows are these instead, drawn at random, each under a
    blur and a JPEG of random strength. Where x is normalised, say how: noise, clamp and JPEG act
    on pixels, and the result is normalised again.

    Args:
        x: Training inputs as the network takes them, [B, ...].
        eps: Half width of the noise in pixels of [0, 1]: 0.031 for CIFAR, 16/255 for ImageNet,
            4/255 for faces (the budgets of the paper's attacks).
        images: OOD images [N, C, H, W] as the network takes them, normalised like x.
        mean: Mean (by channel) that was subtracted from the pixels; None where x is in [0, 1].
        std: Standard deviation (by channel) that they were divided by.

    Returns:
        As many rows as x.

    Example:
        >>> import leanbayes as lb, torch
        >>> x = torch.rand(4, 3, 8, 8)
        >>> noisy = lb.ood_inputs(x, eps=0.1)
        >>> bool((noisy - x).abs().max() <= 0.1), bool(noisy.max() <= 1)
        (True, True)
    """
    if not (math.isfinite(eps) and eps > 0):
        raise ConfigError(f"eps must be a positive number in units of pixels, found {eps!r}")
    shift, scale = _by_channel(mean, 0.0, x), _by_channel(std, 1.0, x)
    if not bool((scale > 0).all()):
        raise ConfigError(f"std must be positive, found {std!r}")
    taken = 0 if images is None else len(x) // 2
    clean = _pixels(x[: len(x) - taken], shift, scale)
    rows = (clean + eps * (2 * torch.rand_like(clean) - 1)).clamp(0, 1)
    if images is not None:
        _check_images(images, x)
        picks = torch.randint(len(images), (taken,), device=images.device)
        pixels = _pixels(images[picks].to(x), shift, scale)
        rows = torch.cat([rows, degraded(pixels.clamp(0, 1))])
    return ((rows - shift) / scale).to(x.dtype)


@torch.no_grad()
def degraded(images: Tensor, sigma: Range = (0.0, 2.0), quality: Range = (30.0, 95.0)) -> Tensor:
    """Every image under a blur and a JPEG of its own random strength.

    Args:
        images: Pixels in [0, 1], [B, C, H, W] with 1 or 3 channels.
        sigma: Bounds of the uniform law of the blur's standard deviation, in pixels.
        quality: Bounds of the uniform law of the JPEG quality, within 1 to 100.

    Example:
        >>> degraded(torch.rand(2, 3, 20, 20)).shape
        torch.Size([2, 3, 20, 20])
    """
    _check(images)
    blurred = blur(images, _uniform(sigma, images))
    return jpeg(blurred, _uniform(quality, images))


@torch.no_grad()
def blur(images: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur of standard deviation `sigma` [B] in pixels; edges are repeated outwards.

    Two depthwise convolutions, columns then rows, with one kernel an image.
    """
    _check(images)
    if not bool((sigma >= 0).all() and sigma.isfinite().all()):
        raise ConfigError(f"sigma must be finite and at least 0, found {sigma.tolist()}")
    batch, channels, height, width = images.shape
    radius = max(1, math.ceil(3 * float(sigma.max())))
    kernel = gaussian_kernel(sigma.float(), radius).repeat_interleave(channels, 0)
    # One image of B * C channels, so that every image meets its own kernel.
    x = images.float().reshape(1, batch * channels, height, width)
    with torch.autocast(images.device.type, enabled=False):
        for pad, shape in (((0, 0, radius, radius), (-1, 1)), ((radius, radius, 0, 0), (1, -1))):
            weight = kernel.reshape(batch * channels, 1, *shape)
            x = F.conv2d(F.pad(x, pad, mode="replicate"), weight, groups=batch * channels)
    return x.reshape(images.shape).to(images.dtype)


def gaussian_kernel(sigma: Tensor, radius: int) -> Tensor:
    """Weights `exp(-d^2 / (2 sigma^2))` for d = -radius to radius, summing to 1, [B, 2 radius + 1].

    A sigma of 0 leaves only the centre.
    """
    distance = torch.arange(-radius, radius + 1, device=sigma.device, dtype=sigma.dtype)
    weights = torch.exp(-0.5 * (distance / sigma.clamp_min(1e-3)[:, None]).square())
    return weights / weights.sum(1, keepdim=True)


@torch.no_grad()
def jpeg(images: Tensor, quality: Tensor) -> Tensor:
    """What a JPEG of `quality` [B] (1 to 100) leaves of the images.

    RGB to YCbCr, a cosine transform of 8 x 8 blocks, division by the tables of Annex K scaled as by
    the IJG, rounding, and back. Chrominance keeps its resolution (4:4:4); one channel is luminance.
    """
    _check(images)
    if not bool(((quality >= 1) & (quality <= 100)).all()):
        raise ConfigError(f"quality lies between 1 and 100, found {quality.tolist()}")
    height, width = images.shape[2:]
    pad = (0, -width % 8, 0, -height % 8)
    table = _tables(quality.float(), images.shape[1])[:, :, None, None]
    with torch.autocast(images.device.type, enabled=False):
        planes = _to_planes((images.float() * 255).round()).round()  # a file holds whole numbers
        coefficients = block_dct(F.pad(planes, pad, mode="replicate"))
        kept = (coefficients / table).round() * table
        restored = _from_planes(block_idct(kept)[..., :height, :width])
    return (restored / 255).clamp(0, 1).to(images.dtype)


def dct_matrix(like: Tensor, size: int = 8) -> Tensor:
    """The orthonormal cosine transform D, `y = D x`: row k is `c_k cos(pi (2 n + 1) k / 2 N)`."""
    n = torch.arange(size, dtype=torch.float64)
    matrix = torch.cos(math.pi * (2 * n + 1) * n[:, None] / (2 * size)) * math.sqrt(2 / size)
    matrix[0] = math.sqrt(1 / size)
    return matrix.to(like)


def block_dct(planes: Tensor) -> Tensor:
    """Cosine transform of the 8 x 8 blocks of [B, C, H, W]: [B, C, H / 8, W / 8, 8, 8]."""
    batch, channels, height, width = planes.shape
    blocks = planes.reshape(batch, channels, height // 8, 8, width // 8, 8).transpose(3, 4)
    matrix = dct_matrix(planes)
    return matrix @ blocks @ matrix.T


def block_idct(coefficients: Tensor) -> Tensor:
    """The inverse of `block_dct`."""
    matrix = dct_matrix(coefficients)
    blocks = (matrix.T @ coefficients @ matrix).transpose(3, 4)
    batch, channels, rows, _, columns, _ = blocks.shape
    return blocks.reshape(batch, channels, rows * 8, columns * 8)


def _to_planes(pixels: Tensor) -> Tensor:
    """Y, Cb, Cr around 0, from pixels in [0, 255]."""
    if pixels.shape[1] == 1:
        return pixels - 128
    planes = torch.einsum("pc,bchw->bphw", pixels.new_tensor(YCBCR), pixels)
    planes[:, 0] -= 128
    return planes


def _from_planes(planes: Tensor) -> Tensor:
    if planes.shape[1] == 1:
        return planes + 128
    inverse = torch.linalg.inv(torch.tensor(YCBCR, dtype=torch.float64)).to(planes)
    return torch.einsum("cp,bphw->bchw", inverse, planes) + 128


def _tables(quality: Tensor, channels: int) -> Tensor:
    """Steps of the quantisation of every image and plane, [B, C, 8, 8]."""
    luminance, chrominance = quality.new_tensor(LUMINANCE), quality.new_tensor(CHROMINANCE)
    tables = torch.stack([luminance, *[chrominance] * (channels - 1)])
    scale = torch.where(quality < 50, (5000 / quality).floor(), 200 - 2 * quality)
    scaled = (tables * scale[:, None, None, None] + 50) / 100
    return scaled.floor().clamp(1, 255)


def _uniform(bounds: Range, images: Tensor) -> Tensor:
    low, high = bounds
    if not low <= high:
        raise ConfigError(f"expected (low, high) with low <= high, found {bounds!r}")
    return low + (high - low) * torch.rand(len(images), device=images.device)


def _check(images: Tensor) -> None:
    if images.dim() != 4 or images.shape[1] not in (1, 3) or not images.is_floating_point():
        raise ConfigError(
            "expected images [B, C, H, W] of 1 or 3 channels with pixels in [0, 1]; found "
            f"{images.dtype} of shape {tuple(images.shape)}"
        )


def _by_channel(value: float | Sequence[float] | None, default: float, x: Tensor) -> Tensor:
    """A number, or one a channel, in a shape that meets [B, C, ...]."""
    tensor = torch.as_tensor(default if value is None else value, device=x.device)
    tensor = tensor.to(at_least_float32(x).dtype)
    if tensor.dim() == 0:
        return tensor
    if tensor.dim() != 1 or x.dim() < 2 or len(tensor) not in (1, x.shape[1]):
        raise ConfigError(
            f"expected a number, or one for each of the channels of x {tuple(x.shape)}; found "
            f"{tuple(tensor.shape)}"
        )
    return tensor.reshape(1, -1, *(1,) * (x.dim() - 2))


def _pixels(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    pixels = at_least_float32(x) * scale + shift
    # On other devices the look at the values would make every step wait.
    if pixels.device.type == "cpu" and pixels.numel():
        low, high = float(pixels.min()), float(pixels.max())
        if not (low >= -0.01 and high <= 1.01):
            raise ConfigError(
                f"pixels lie in [{low:.3g}, {high:.3g}], expected [0, 1]. Say how the inputs were "
                "normalised: lb.ood_inputs(x, mean=..., std=...) with the numbers of the transform"
            )
    return pixels


def _check_images(images: Tensor, x: Tensor) -> None:
    if images.dim() != 4 or images.shape[1:] != x.shape[1:] or len(images) == 0:
        raise ConfigError(
            f"expected OOD images of the shape of the training images, [N, {x.shape[1:]}], N >= 1; "
            f"found {tuple(images.shape)}"
        )
