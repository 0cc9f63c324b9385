"""Small images as PNG in a data URI, with zlib alone."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode

from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

LARGEST = 96  # pixels of the longer side


def data_uri(pixels: Tensor) -> str:
    """An image [C, H, W] with 1 or 3 channels and pixels in [0, 1], as an address for `<img>`.

    Example:
        >>> import torch
        >>> data_uri(torch.zeros(1, 2, 2))[:22]
        'data:image/png;base64,'
    """
    return "data:image/png;base64," + b64encode(encoded(_small(pixels))).decode("ascii")


def encoded(pixels: Tensor) -> bytes:
    """The file: 8 bits a channel, no filter, one chunk of data."""
    channels, height, width = pixels.shape
    levels = (pixels.detach().cpu().float().clamp(0, 1) * 255).round().byte()
    rows = levels.permute(1, 2, 0).reshape(height, -1).numpy()
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    kind = 0 if channels == 1 else 2  # grey, or red, green, blue
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _small(pixels: Tensor) -> Tensor:
    sides = pixels.shape[1:]
    if max(sides) <= LARGEST:
        return pixels
    height, width = (max(1, round(side * LARGEST / max(sides))) for side in sides)
    found: Tensor = adaptive_avg_pool2d(pixels.float().unsqueeze(0), (height, width))[0]
    return found


def _chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)
