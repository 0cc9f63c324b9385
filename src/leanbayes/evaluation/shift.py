"""A shift of a split: which one, how strong, and how it acts on inputs of the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from leanbayes.data import Normalize
from leanbayes.errors import ConfigError
from leanbayes.shifts import corrupt, mix_noise, rotate, salt_and_pepper
from leanbayes.shifts.registry import check_name, check_severity

LEVELLED = ("mix_noise", "salt_and_pepper", "rotate")


@dataclass(frozen=True)
class Shift:
    """One of the common corruptions with a severity, or one of `LEVELLED` with a level.

    Attributes:
        name: A key of `lb.shifts.CORRUPTIONS`, or mix_noise, salt_and_pepper, rotate.
        severity: 1 to 5 (corruptions).
        level: Share of noise, or degrees (the others).

    Example:
        >>> import torch
        >>> x = torch.rand(3, 1, 8, 8)
        >>> Shift("rotate", level=0.0)(x, None, seed=0, first=0).sub(x).abs().max().item() < 1e-6
        True
    """

    name: str
    severity: int | None = None
    level: float | None = None

    def __post_init__(self) -> None:
        if (self.name in LEVELLED) != (self.level is not None and self.severity is None):
            raise ConfigError(
                f"Shift({self.name!r}, severity={self.severity}, level={self.level}): a corruption "
                f"has a severity from 1 to 5; {', '.join(LEVELLED)} have a level"
            )
        if self.severity is not None:
            check_name(self.name)
            check_severity(self.severity)

    def __call__(self, x: Tensor, scale: Normalize | None, *, seed: int, first: int) -> Tensor:
        """Shifted inputs on the device of the inputs.

        Args:
            x: As the network takes them, [B, ...].
            scale: How they were made from pixels; None where they are pixels.
            seed: Of the noise.
            first: Index of the first row: noise belongs to the row, not to the batch.
        """
        if self.name == "mix_noise":  # in units of the inputs (iBNN, Eq. 28)
            return mix_noise(x, self.level or 0.0, seed=seed, first=first)
        pixels = x if scale is None else scale.undo(x)
        found = self._of_pixels(pixels, seed, first)
        return found if scale is None else scale(found).to(x.dtype)

    def _of_pixels(self, pixels: Tensor, seed: int, first: int) -> Tensor:
        if self.severity is not None:
            return corrupt(pixels, self.name, self.severity, seed=seed, first=first)
        if self.name == "rotate":
            return rotate(pixels, self.level or 0.0)
        return salt_and_pepper(pixels, self.level or 0.0, seed=seed, first=first)

    def plain(self) -> dict[str, Any]:
        """As it stands in results."""
        if self.severity is not None:
            return {"name": self.name, "severity": self.severity}
        return {"name": self.name, "level": self.level}
