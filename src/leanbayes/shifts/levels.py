"""Pixels as files hold them: multiples of 1 / 255."""

from __future__ import annotations

from torch import Tensor


def whole_levels(pixels: Tensor) -> Tensor:
    """Pixels clamped to [0, 1] and cut off (not rounded) to 8 bits, as a cast to uint8 does.

    A thousandth of a level more keeps whole levels whole under the noise of float32.

    Example:
        >>> import torch
        >>> (whole_levels(torch.tensor([-1.0, 0.5, 3 / 255, 2.0])) * 255).round().tolist()
        [0.0, 127.0, 3.0, 255.0]
    """
    return (pixels.clamp(0, 1) * 255 + 1e-3).floor() / 255


def rounded(pixels: Tensor) -> Tensor:
    """Pixels to the nearest of 8 bits, halves up."""
    return (pixels.clamp(0, 1) * 255 + 0.5 + 1e-3).floor() / 255
