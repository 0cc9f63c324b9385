"""Noise of an image that depends on the seed, the shift and the image's index alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from leanbayes.noise import key_seed


class Draws:
    """One generator an image, on the CPU: no number depends on batch size or device.

    Args:
        seed: The user's seed.
        key: Name (and severity) of the shift.
        indices: Index of every image in its data set.
        like: A tensor that says on which device and in which dtype noise is wanted.

    Example:
        >>> both = Draws(0, "fog/1", [0, 1], torch.empty(0)).uniform(3)
        >>> torch.equal(both[1:], Draws(0, "fog/1", [1], torch.empty(0)).uniform(3))
        True
    """

    def __init__(self, seed: int, key: str, indices: Sequence[int], like: Tensor) -> None:
        self.like = like
        self.generators = [torch.Generator() for _ in indices]
        for generator, index in zip(self.generators, indices, strict=True):
            generator.manual_seed(key_seed(seed, key, index))

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, [B, *shape]."""
        return self._filled(torch.randn, shape).to(self.like)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Numbers in [low, high), [B, *shape]."""
        return low + (high - low) * self._filled(torch.rand, shape).to(self.like)

    def whole(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers from low to high - 1, int64, [B, *shape]."""
        numbers = self._filled(torch.rand, shape).mul_(high - low).floor_().long() + low
        return numbers.to(self.like.device)

    def numbers(self, low: float, high: float) -> list[float]:
        """One number in [low, high) an image, for arithmetic of Python."""
        return [low + (high - low) * u for u in self._filled(torch.rand, ()).tolist()]

    def poisson(self, rates: Tensor) -> Tensor:
        """Counts of the rates [B, ...]."""
        rows = zip(rates.cpu(), self.generators, strict=True)
        return torch.stack([torch.poisson(row, generator=g) for row, g in rows]).to(rates)

    def _filled(self, law: Callable[..., Tensor], shape: tuple[int, ...]) -> Tensor:
        return torch.stack([law(shape, generator=g) for g in self.generators])
