"""Random changes of image batches, where the batch is: crop, flip, cutout.

Every row is changed on its own. Numbers come from the global generator of the batch's device: the
law is the same everywhere, the numbers are not. Nothing waits for a GPU. For `lb.fit(augment=...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leanbayes.data.dataset import Normalize
from leanbayes.errors import ConfigError, DataError

Fill = float | tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Crop:
    """Pad by `padding` pixels and cut the original size out again, anywhere.

    The shift is uniform over the (2 padding + 1)^2 possible ones.

    Attributes:
        padding: Pixels on each side.
        fill: Value of the padding, in the units of the inputs; one number a channel, or one.
    """

    padding: int = 4
    fill: Fill = 0.0

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise ConfigError(f"padding is 0 or more, found {self.padding}")

    def __call__(self, x: Tensor) -> Tensor:
        """Crops of images [N, C, H, W]."""
        rows, channels, height, width = _shape(x)
        pad = self.padding
        wide = _filling(self.fill, x).expand(rows, channels, height + 2 * pad, width + 2 * pad)
        wide = wide.clone()
        wide[:, :, pad : pad + height, pad : pad + width] = x
        row = torch.arange(rows, device=x.device).view(-1, 1, 1, 1)
        channel = torch.arange(channels, device=x.device).view(1, -1, 1, 1)
        down = _shifted(rows, height, pad, x).view(rows, 1, height, 1)
        right = _shifted(rows, width, pad, x).view(rows, 1, 1, width)
        return wide[row, channel, down, right]


@dataclass(frozen=True, kw_only=True)
class Flip:
    """Mirror left and right, with probability `rate`."""

    rate: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ConfigError(f"rate of a flip is from 0 to 1, found {self.rate}")

    def __call__(self, x: Tensor) -> Tensor:
        """Images [N, C, H, W], some mirrored."""
        chosen = torch.rand(_shape(x)[0], device=x.device) < self.rate
        return torch.where(chosen.view(-1, 1, 1, 1), x.flip(3), x)


@dataclass(frozen=True, kw_only=True)
class Cutout:
    """Cover a square around a uniform pixel; what hangs over the edge is cut off.

    DeVries and Taylor, Improved regularization of convolutional neural networks with Cutout, 2017.

    Attributes:
        size: Side of the square.
        fill: Value in the square, in the units of the inputs: 0 is the mean of normalised ones.
    """

    size: int = 8
    fill: Fill = 0.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"size of a cutout is 1 or more, found {self.size}")

    def __call__(self, x: Tensor) -> Tensor:
        """Images [N, C, H, W] with a square covered."""
        rows, _, height, width = _shape(x)
        down = self._covered(rows, height, x).view(rows, 1, height, 1)
        right = self._covered(rows, width, x).view(rows, 1, 1, width)
        return torch.where(down & right, _filling(self.fill, x), x)

    def _covered(self, rows: int, length: int, x: Tensor) -> Tensor:
        """Which places [rows, length] the square covers: `size` ones from centre - size // 2 on."""
        centre = torch.randint(length, (rows, 1), device=x.device)
        distance = torch.arange(length, device=x.device) - centre + self.size // 2
        return (distance >= 0) & (distance < self.size)


@dataclass(frozen=True)
class Chain:
    """Several changes, one after the other."""

    steps: Sequence[Callable[[Tensor], Tensor]]

    def __call__(self, x: Tensor) -> Tensor:
        """Images after the last change."""
        for step in self.steps:
            x = step(x)
        return x


def augment_named(
    names: str, *, normalize: Normalize | None = None, padding: int = 4, size: int = 8
) -> Chain:
    """A chain by name, as a settings file writes it: "crop+flip+cutout:16".

    Args:
        names: Any of crop, flip, cutout, joined by "+", in the order they run; "none": nothing. A
            number after a colon is the padding of that crop or the size of that cutout.
        normalize: How inputs were scaled, so that crops are padded with black, as is usual; without
            it with 0. Cutouts are 0 in either case.
        padding: Of a crop that names none.
        size: Of a cutout that names none.

    Example:
        >>> augment_named("crop:2+flip").steps
        (Crop(padding=2, fill=0.0), Flip(rate=0.5))
    """
    black = 0.0 if normalize is None else _black(normalize)
    known: dict[str, Callable[[int | None], Callable[[Tensor], Tensor]]] = {
        "crop": lambda pixels: Crop(padding=padding if pixels is None else pixels, fill=black),
        "flip": lambda pixels: _flip(pixels, names),
        "cutout": lambda pixels: Cutout(size=size if pixels is None else pixels),
    }
    wanted = [] if names in ("", "none") else [word.strip() for word in names.split("+")]
    parts = [word.partition(":") for word in wanted]
    for (name, colon, pixels), word in zip(parts, wanted, strict=True):
        if name not in known or (colon and not pixels.isdecimal()):
            raise ConfigError(
                f"augment knows {', '.join(known)}, joined by +, with pixels after a colon "
                f"(cutout:16), or none; found {word!r} in {names!r}"
            )
    return Chain(tuple(known[name](int(pixels) if pixels else None) for name, _, pixels in parts))


def _flip(pixels: int | None, names: str) -> Flip:
    if pixels is not None:
        raise ConfigError(f"augment: a flip has no number, found flip:{pixels} in {names!r}")
    return Flip()


def _black(scale: Normalize) -> tuple[float, ...]:
    return tuple(-mean / std for mean, std in zip(scale.mean, scale.std, strict=True))


def _shape(x: Any) -> tuple[int, int, int, int]:
    if not isinstance(x, Tensor) or x.dim() != 4:
        found = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise DataError(f"augment takes images [N, C, H, W], found {found}; write augment='none'")
    return x.shape[0], x.shape[1], x.shape[2], x.shape[3]


def _shifted(rows: int, length: int, padding: int, x: Tensor) -> Tensor:
    """Places [rows, length] in the padded image, a uniform shift a row."""
    shift = torch.randint(2 * padding + 1, (rows, 1), device=x.device)
    return shift + torch.arange(length, device=x.device)


def _filling(fill: Fill, x: Tensor) -> Tensor:
    """The fill as [1, C or 1, 1, 1], like x."""
    values = fill if isinstance(fill, tuple) else (fill,)
    if len(values) not in (1, x.shape[1]):
        raise ConfigError(f"fill has {len(values)} values, the images have {x.shape[1]} channels")
    # Filled there: torch.tensor would copy from the host and wait for the GPU.
    return torch.stack([x.new_full((), value) for value in values]).view(1, -1, 1, 1)
