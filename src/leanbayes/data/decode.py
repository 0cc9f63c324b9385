"""Image files to bytes [C, H, W], by Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from leanbayes.data.files import Array, optional
from leanbayes.errors import ConfigError, DataError

_KINDS: Final = "jpg jpeg png bmp gif ppm pgm tif tiff webp"
SUFFIXES: Final = frozenset(f".{kind}" for kind in _KINDS.split())
_MODES: Final = {1: "L", 3: "RGB"}


class Frame(NamedTuple):
    """How pictures of any size become equal: scaled, then cut out of the middle.

    Attributes:
        height: Of the piece.
        width: Of the piece.
        resize: Length of the shorter side before cutting; None: as small as covers the piece.
        whole: Scale height and width each, so that nothing is cut off; proportions may change.
    """

    height: int
    width: int
    resize: int | None = None
    whole: bool = False

    @classmethod
    def of(cls, size: int | Sequence[int] | None, resize: int | None = None) -> Frame | None:
        """From `size=224`, `size=(height, width)` or None (pictures stay as they are)."""
        if size is None:
            if resize is not None:
                raise ConfigError(f"resize={resize} needs a size to cut out; write size={resize}")
            return None
        height, width = (size, size) if isinstance(size, int) else size
        if min(height, width) < 1 or (resize is not None and resize < max(height, width)):
            raise ConfigError(
                f"size={size} and resize={resize} do not fit: expected sizes of at least 1 and a "
                "resize not below them"
            )
        return cls(height, width, resize)

    def scaled(self, width: int, height: int) -> tuple[int, int]:
        """Width and height after scaling; the longer side is rounded down, as torchvision does."""
        if self.whole:
            return self.width, self.height
        by_height = height * self.width <= width * self.height
        if self.resize is not None:
            by_height = height <= width
        if by_height:
            new = self.resize or self.height
            return width * new // height, new
        new = self.resize or self.width
        return new, height * new // width

    def cut(self, image: Any) -> Any:
        """A Pillow image in the frame; bilinear with antialiasing."""
        size = self.scaled(*image.size)
        if size != image.size:
            image = image.resize(size, optional("PIL.Image", "Pillow").Resampling.BILINEAR)
        left, top = round((size[0] - self.width) / 2), round((size[1] - self.height) / 2)
        return image.crop((left, top, left + self.width, top + self.height))


def decode(path: str | Path, frame: Frame | None = None, channels: int = 3) -> Tensor:
    """One file as uint8 [channels, H, W]: 1 is grey, 3 is RGB.

    16-bit grey keeps its upper byte; transparency is dropped.

    Raises:
        DataError: It is missing, cut short or no picture.
    """
    if channels not in _MODES:
        raise ConfigError(f"channels is 1 (grey) or 3 (RGB); found {channels}")
    opened = optional("PIL.Image", "Pillow").open
    try:
        with opened(path) as image:
            return pixels_of(image, frame, channels)
    except Exception as error:  # what a damaged picture raises depends on its format
        raise DataError(f"{path} cannot be read as a picture: {error}") from error


def pixels_of(image: Any, frame: Frame | None, channels: int) -> Tensor:
    """An open Pillow image as uint8 [channels, H, W]; a damaged one raises whatever Pillow does."""
    ready = _converted(image, _MODES[channels])
    pixels: Array = np.array(ready if frame is None else frame.cut(ready), np.uint8)
    return torch.from_numpy(pixels).reshape(*pixels.shape[:2], channels).permute(2, 0, 1)


def _converted(image: Any, mode: str) -> Any:
    if image.mode.startswith("I;16"):  # Pillow would clip at 255 instead of scaling
        upper = (np.asarray(image) >> 8).astype(np.uint8)
        image = optional("PIL.Image", "Pillow").fromarray(upper)
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels have 32 bits (mode {image.mode}); save it with 8 or 16")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert(mode)


def decode_images(
    paths: Sequence[str | Path],
    *,
    size: int | Sequence[int] | None = None,
    resize: int | None = None,
    channels: int = 3,
    whole: bool = False,
) -> tuple[Tensor, list[Path], list[tuple[Path, str]]]:
    """Files as one tensor; what cannot be read is listed and left out.

    Args:
        paths: Image files.
        size: Side, or (height, width), of the piece cut from the middle; None: all files must have
            the size of the first good one.
        resize: Shorter side before cutting; None: as small as covers the piece.
        channels: 1 (grey) or 3 (RGB).
        whole: Scale the whole picture to the size, as segmentation does, and cut nothing off.

    Returns:
        uint8 [N, channels, H, W], the N good paths, and the bad ones with the reason.
    """
    frame = Frame.of(size, resize)
    frame = frame._replace(whole=True) if frame is not None and whole else frame
    pixels: list[Tensor] = []
    good: list[Path] = []
    bad: list[tuple[Path, str]] = []
    for path in map(Path, paths):
        try:
            image = decode(path, frame, channels)
            check_size(image, pixels[0] if pixels else image, path)
        except DataError as error:
            bad.append((path, str(error)))
        else:
            pixels.append(image)
            good.append(path)
    height, width = (frame.height, frame.width) if frame is not None else (0, 0)
    stacked = torch.stack(pixels) if pixels else torch.empty(0, channels, height, width).byte()
    return stacked, good, bad


def check_size(image: Tensor, first: Tensor, path: str | Path) -> None:
    """Refuse a picture of another size than the first."""
    if image.shape != first.shape:
        (height, width), (rows, columns) = image.shape[1:], first.shape[1:]
        raise DataError(
            f"{path} is {height}x{width}, the first picture is {rows}x{columns}; "
            f"write size={min(rows, columns)} to make them equal"
        )
