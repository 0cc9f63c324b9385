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
from leanbayes.jpeg import check_images, jpeg
from leanbayes.ops import at_least_float32

Range = tuple[float, float]


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
    check_images(images)
    blurred = blur(images, _uniform(sigma, images))
    return jpeg(blurred, _uniform(quality, images))


@torch.no_grad()
def blur(images: Tensor, sigma: Tensor, truncate: float = 3.0) -> Tensor:
    """Gaussian blur of standard deviation `sigma` [B] in pixels; edges are repeated outwards.

    Two depthwise convolutions, columns then rows, with one kernel an image, cut off
    at `truncate` standard deviations of the widest.
    """
    check_images(images)
    if not bool((sigma >= 0).all() and sigma.isfinite().all()):
        raise ConfigError(f"sigma must be finite and at least 0, found {sigma.tolist()}")
    batch, channels, height, width = images.shape
    radius = max(1, math.ceil(truncate * float(sigma.max())))
    pixels = at_least_float32(images)
    kernel = gaussian_kernel(sigma.to(pixels), radius).repeat_interleave(channels, 0)
    # One image of B * C channels, so that every image meets its own kernel.
    x = pixels.reshape(1, batch * channels, height, width)
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


def _uniform(bounds: Range, images: Tensor) -> Tensor:
    low, high = bounds
    if not low <= high:
        raise ConfigError(f"expected (low, high) with low <= high, found {bounds!r}")
    return low + (high - low) * torch.rand(len(images), device=images.device)


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
