"""Noise on pixels: four corruptions of the benchmark, and the two noises of iBNN's Figure 8."""

from __future__ import annotations

import torch
from torch import Tensor

from leanbayes.errors import ConfigError
from leanbayes.ops import at_least_float32
from leanbayes.shifts.draws import Draws
from leanbayes.shifts.strengths import Strength


def gaussian_noise(images: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """`x + std * e` with e standard normal."""
    (std,) = strength
    return images + std * draws.normal(*images.shape[1:])


def shot_noise(images: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """Counts of light: `Poisson(x * photons) / photons`."""
    (photons,) = strength
    return draws.poisson(images * photons) / photons


def impulse_noise(images: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """A share of the values becomes 0 or 1, with equal chances."""
    (share,) = strength
    return _struck(images, share, draws)


def speckle_noise(images: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """`x + x * std * e` with e standard normal."""
    (std,) = strength
    return images + images * std * draws.normal(*images.shape[1:])


@torch.no_grad()
def mix_noise(images: Tensor, gamma: float, *, seed: int = 0, first: int = 0) -> Tensor:
    """`(1 - gamma) x + gamma e` with e standard normal (iBNN, Eq. 28), in units of the inputs.

    No range is assumed and nothing is clamped: give the inputs as the network takes them.

    Args:
        images: Inputs [B, ...] of any shape.
        gamma: Share of the noise, from 0 to 1.
        seed: Of the noise; all shares meet the same noise.
        first: Index of the first row in its data set.

    Example:
        >>> x = torch.ones(2, 1, 4, 4)
        >>> torch.equal(mix_noise(x, 0.3, first=5)[1:], mix_noise(x[1:], 0.3, first=6))
        True
    """
    noise = _draws(images, "mix_noise", gamma, seed, first).normal(*images.shape[1:])
    x = at_least_float32(images)
    return ((1 - gamma) * x + gamma * noise).to(images.dtype)


@torch.no_grad()
def salt_and_pepper(images: Tensor, share: float, *, seed: int = 0, first: int = 0) -> Tensor:
    """Every value becomes 0 or 1 with probability `share`, with equal chances (iBNN, section 6).

    Args:
        images: Pixels in [0, 1], [B, ...].
        share: Probability, from 0 to 1; what a smaller share strikes, a larger one strikes too.
        seed: Of the noise.
        first: Index of the first row in its data set.

    Example:
        >>> salt_and_pepper(torch.full((1, 1, 50, 50), 0.5), 1.0).unique().tolist()
        [0.0, 1.0]
    """
    draws = _draws(images, "salt_and_pepper", share, seed, first)
    return _struck(images, share, draws)


def _struck(images: Tensor, share: float, draws: Draws) -> Tensor:
    chance = draws.uniform(*images.shape[1:])
    value = (draws.uniform(*images.shape[1:]) < 0.5).to(images.dtype)
    return torch.where(chance < share, value, images)


def _draws(images: Tensor, key: str, share: float, seed: int, first: int) -> Draws:
    if not 0 <= share <= 1:
        raise ConfigError(f"{key}: expected a share between 0 and 1, found {share!r}")
    if not images.is_floating_point() or images.dim() < 2:
        raise ConfigError(
            f"{key}: expected floating point inputs [B, ...], found {images.dtype} of shape "
            f"{tuple(images.shape)}"
        )
    indices = range(first, first + len(images))
    return Draws(seed, key, indices, at_least_float32(images[:0]))
