"""The common corruptions by name, and `corrupt`, which applies one of them to a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

import torch
from torch import Tensor

from leanbayes.errors import ConfigError
from leanbayes.jpeg import check_images
from leanbayes.ops import at_least_float32
from leanbayes.shifts import blurs, digital, noises, weather
from leanbayes.shifts.draws import Draws
from leanbayes.shifts.levels import whole_levels
from leanbayes.shifts.spatter import spatter
from leanbayes.shifts.strengths import CIFAR, IMAGENET, Strength

Corruption = Callable[[Tensor, Strength, Draws], Tensor]

SEVERITIES = (1, 2, 3, 4, 5)
SMALL = 32  # the longest side that takes CIFAR-C's strengths
LEAST = 8  # the shortest side that all blurs and blocks fit into

CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        "gaussian_noise": noises.gaussian_noise,
        "shot_noise": noises.shot_noise,
        "impulse_noise": noises.impulse_noise,
        "defocus_blur": blurs.defocus_blur,
        "glass_blur": blurs.glass_blur,
        "motion_blur": blurs.motion_blur,
        "zoom_blur": blurs.zoom_blur,
        "snow": weather.snow,
        "frost": weather.frost,
        "fog": weather.fog,
        "brightness": weather.brightness,
        "contrast": digital.contrast,
        "elastic_transform": digital.elastic_transform,
        "pixelate": digital.pixelate,
        "jpeg_compression": digital.jpeg_compression,
        "speckle_noise": noises.speckle_noise,
        "gaussian_blur": blurs.gaussian_blur,
        "spatter": spatter,
        "saturate": digital.saturate,
    }
)
_NAMES = tuple(CORRUPTIONS)
GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "noise": _NAMES[:3],
        "blur": _NAMES[3:7],
        "weather": _NAMES[7:11],
        "digital": _NAMES[11:15],
        "extra": _NAMES[15:],
    }
)


@torch.no_grad()
def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    seed: int = 0,
    first: int = 0,
    quantize: bool = True,
) -> Tensor:
    """Images under one of the 15 + 4 common corruptions, on the device they lie on.

    Hendrycks and Dietterich, Benchmarking neural network robustness to common corruptions and
    perturbations, 2019. CIFAR-10-C's strengths where the longer side is at most 32 pixels, and
    ImageNet-C's otherwise. Noise is drawn on the CPU from (seed, name, severity, index of the
    image), so that it does not depend on the batch or the device.

    Args:
        images: Pixels in [0, 1], [B, C, H, W] with 1 or 3 channels; not normalised.
        name: One of `CORRUPTIONS`.
        severity: 1 to 5.
        seed: Of the noise.
        first: Index of the first image in its data set: a loader adds up its batches.
        quantize: Cut off to multiples of 1 / 255, as the benchmark's files do.

    Returns:
        Pixels in [0, 1], of the shape and dtype of the images.

    Example:
        >>> import leanbayes as lb, torch
        >>> x = torch.rand(4, 3, 32, 32)
        >>> foggy = lb.shifts.corrupt(x, "fog", 3)
        >>> torch.equal(foggy[2:], lb.shifts.corrupt(x[2:], "fog", 3, first=2))
        True
    """
    check_name(name)
    check_severity(severity)
    _check_pixels(images)
    table = CIFAR if max(images.shape[2:]) <= SMALL else IMAGENET
    pixels = at_least_float32(images)
    draws = Draws(seed, f"{name}/{severity}", range(first, first + len(images)), pixels[:0])
    result = CORRUPTIONS[name](pixels, table[name][severity - 1], draws)
    result = whole_levels(result) if quantize else result.clamp(0, 1)
    return result.to(images.dtype)


def check_name(name: str) -> None:
    """Refuse what is no corruption, with the nearest names."""
    if name not in CORRUPTIONS:
        near = get_close_matches(str(name).lower(), CORRUPTIONS, n=3, cutoff=0.4) or _NAMES
        raise ConfigError(
            f"unknown corruption {name!r}; nearest: {', '.join(near)}. "
            f'Write lb.shifts.corrupt(images, "{near[0]}", severity)'
        )


def check_severity(severity: int) -> None:
    """Refuse what is no whole number from 1 to 5."""
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise ConfigError(f"severity is a whole number from 1 to 5, found {severity!r}")


def _check_pixels(images: Tensor) -> None:
    check_images(images)
    if len(images) == 0 or min(images.shape[2:]) < LEAST:
        raise ConfigError(
            f"expected at least one image of at least {LEAST} x {LEAST} pixels, found shape "
            f"{tuple(images.shape)}"
        )
    low, high = float(images.min()), float(images.max())
    if not (low >= -1e-3 and high <= 1 + 1e-3):
        raise ConfigError(
            f"pixels lie in [{low:.3g}, {high:.3g}], expected [0, 1]: corrupt the images first and "
            "normalise them afterwards (data.normalize.undo(x) goes back)"
        )
