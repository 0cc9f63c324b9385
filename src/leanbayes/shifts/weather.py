"""Weather: snow, frost, fog, and the brightness of the day."""

from __future__ import annotations

import torch
from torch import Tensor

from leanbayes.shifts.colour import grey, like_channels
from leanbayes.shifts.draws import Draws
from leanbayes.shifts.geometry import streaked, zoomed
from leanbayes.shifts.levels import rounded, whole_levels
from leanbayes.shifts.strengths import Strength
from leanbayes.shifts.texture import clouds, ice


def snow(images: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """Flakes (noise, enlarged, cut off below a threshold) that fall, on a whitened image.

    The flakes are added twice, the second time turned by half a circle.
    """
    mean, std, zoom, threshold, radius, sigma, keep = strength
    flakes = zoomed(mean + std * draws.normal(1, *images.shape[2:]), zoom)
    flakes = whole_levels(torch.where(flakes < threshold, 0, flakes))
    falling = rounded(streaked(flakes, int(radius), sigma, draws.numbers(-135, -45)))
    white = torch.maximum(images, 1.5 * grey(images) + 0.5)
    return keep * images + (1 - keep) * white + falling + falling.flip(2, 3)


def frost(images: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """`keep * x + share * ice`.

    The benchmark pastes parts of five photographs. Here the ice is a generated texture with their
    mean colours and spreads, so figures are near the benchmark's but not the same.
    """
    keep, share = strength
    return keep * images + share * like_channels(ice(images.shape[2:], draws), images)


def fog(images: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """`(x + share * clouds) * m / (m + share)`, m the brightest value of the image."""
    share, decay = strength
    brightest = images.amax((1, 2, 3), keepdim=True)
    hazy = images + share * clouds(images.shape[2:], decay, draws)
    return hazy * brightest / (brightest + share)


def brightness(images: Tensor, strength: Strength, draws: Draws) -> Tensor:  # noqa: ARG001
    """The value V of hue, saturation and value grows by a constant, up to 1.

    Hue and saturation stay, so all channels grow by the factor V' / V; black becomes grey.
    """
    (more,) = strength
    value = images.amax(1, keepdim=True)
    brighter = (value + more).clamp(0, 1)
    return torch.where(value > 0, images * (brighter / value.clamp_min(1e-6)), brighter)
