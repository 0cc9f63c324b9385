"""Where an attack may go: balls around clean pixels, bounds, and the scale of inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from leanbayes.data import Normalize
from leanbayes.errors import ConfigError, DataError
from leanbayes.noise import key_seed

Norm = Literal["inf", "2"]
ROOM = 1e-4  # pixels that were normalised and back may leave their bounds by rounding


@dataclass(frozen=True)
class Ball:
    """Where pixels may go: not further than `eps` from the clean ones, and within the bounds."""

    eps: float
    step_size: float
    norm: Norm
    bounds: tuple[float, float] | None

    def __post_init__(self) -> None:
        for name in ("eps", "step_size"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ConfigError(f"{name} must be a positive number of pixels, found {value!r}")
        if self.norm not in ("inf", "2"):
            raise ConfigError(f"norm is 'inf' or '2', found {self.norm!r}")

    def within_bounds(self, pixels: Tensor) -> Tensor:
        """Clean pixels, cut to the bounds if it is rounding that made them leave."""
        if self.bounds is None:
            return pixels
        low, high = self.bounds
        if pixels.numel() and not (pixels.min() >= low - ROOM and pixels.max() <= high + ROOM):
            raise DataError(
                f"pixels lie between {float(pixels.min()):.4g} and {float(pixels.max()):.4g}: "
                f"expected {low:g} to {high:g}. Of scaled inputs write normalize=lb.data.Normalize("
                "mean, std), of inputs without bounds bounds=None"
            )
        return pixels.clamp(low, high)

    def random(self, clean: Tensor, seed: int, first: int | None = None) -> Tensor:
        """A point of the ball, evenly; drawn on the CPU, so that devices agree.

        Args:
            clean: The middle.
            seed: Of the point.
            first: Index of the first row, where a row's point shall not depend on the batch.
        """
        if first is None:
            shift = self._shift(clean, torch.Generator().manual_seed(seed))
        else:
            sources = (
                torch.Generator().manual_seed(key_seed(seed, "start", first + row))
                for row in range(len(clean))
            )
            parts = [self._shift(clean[:1], source) for source in sources]
            shift = torch.cat(parts) if parts else clean.cpu()
        return self.project(clean + self.eps * shift.to(clean.device), clean)

    def _shift(self, like: Tensor, source: torch.Generator) -> Tensor:
        """A point of the unit ball around 0 a row."""
        if self.norm == "inf":
            return torch.rand(like.shape, generator=source, dtype=like.dtype) * 2 - 1
        shift = _unit(torch.randn(like.shape, generator=source, dtype=like.dtype))
        lot = torch.rand(len(like), generator=source, dtype=like.dtype)
        return shift * by_row(lot ** (1 / max(like[0].numel(), 1)), shift)

    def move(self, slope: Tensor) -> Tensor:
        """One step uphill."""
        return self.step_size * (slope.sign() if self.norm == "inf" else _unit(slope))

    def project(self, pixels: Tensor, clean: Tensor) -> Tensor:
        """The nearest point of the ball, then of the bounds, which does not leave the ball."""
        shift = pixels - clean
        if self.norm == "inf":
            shift = shift.clamp(-self.eps, self.eps)
        else:
            length = _lengths(shift)
            shift = shift * by_row((self.eps / length).clamp(max=1), shift)
        return clean + shift if self.bounds is None else (clean + shift).clamp(*self.bounds)


@dataclass(frozen=True)
class Scale:
    """`(pixels - mean) / std` in the type of the inputs, with gradients."""

    mean: Tensor
    std: Tensor

    @staticmethod
    def of(x: Tensor, normalize: Normalize | None) -> Scale:
        """The scale of some inputs; without one they are pixels."""
        if not x.is_floating_point() or x.dim() < 2:
            found = f"{x.dtype} {tuple(x.shape)}"
            raise ConfigError(f"x must be floating numbers [B, ...] to be moved, found {found}")
        numbers = ((0.0,), (1.0,)) if normalize is None else (normalize.mean, normalize.std)
        mean, std = (x.new_tensor(v).reshape(-1, *(1,) * (x.dim() - 2)) for v in numbers)
        return Scale(mean, std)

    def __call__(self, pixels: Tensor) -> Tensor:
        """As the network takes them."""
        return (pixels - self.mean.to(pixels)) / self.std.to(pixels)

    def undo(self, x: Tensor) -> Tensor:
        """Pixels."""
        return x * self.std + self.mean


def _unit(values: Tensor) -> Tensor:
    """Every row divided by its length; rows of zeros stay."""
    return values / by_row(_lengths(values), values)


def _lengths(values: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(values.flatten(1), dim=1)
    return length.clamp_min(torch.finfo(values.dtype).tiny)


def by_row(numbers: Tensor, like: Tensor) -> Tensor:
    """One number a row, to be multiplied with pixels."""
    return numbers.reshape(-1, *(1,) * (like.dim() - 1))
