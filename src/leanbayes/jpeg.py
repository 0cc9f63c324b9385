"""What a JPEG leaves of an image, in whole numbers as a codec has them, without files or codecs.

Independent JPEG Group's rules: colours in fixed point, cosine transform of 8 x 8 blocks, division
by the tables of ITU-T T.81, Annex K, rounding, and back. Values that meet a rounding are first put
on a fine grid: ties are common there, and fall the same way on every device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from leanbayes.errors import ConfigError

# ITU-T T.81, Annex K: the tables of luminance and chrominance at quality 50.
LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
)
# JFIF: Y, Cb, Cr from R, G, B, and back, in units of 2^-16.
YCBCR = ((19595, 38470, 7471), (-11059, -21709, 32768), (32768, -27439, -5329))
RGB = ((65536, 0, 91881), (65536, -22554, -46802), (65536, 116130, 0))


@torch.no_grad()
def jpeg(images: Tensor, quality: Tensor, subsample: bool = False) -> Tensor:
    """What a JPEG of `quality` [B] (1 to 100) leaves of the images; one channel is luminance.

    Args:
        images: Pixels in [0, 1], [B, C, H, W] with 1 or 3 channels.
        quality: One number an image.
        subsample: Chrominance at half the resolution (4:2:0, what files mostly hold), averaged
            over 2 x 2 pixels and interpolated back; otherwise at the full one (4:4:4).

    Returns:
        Multiples of 1 / 255, in the dtype of the images.

    Example:
        >>> jpeg(torch.full((1, 1, 8, 8), 0.5), torch.tensor([50.0])).unique().mul(255).tolist()
        [128.0]
    """
    check_images(images)
    if not bool(((quality >= 1) & (quality <= 100)).all()):
        raise ConfigError(f"quality lies between 1 and 100, found {quality.tolist()}")
    tables = _tables(quality.to(images.device, torch.float32), images.shape[1])
    with torch.autocast(images.device.type, enabled=False):
        planes = _to_planes((images.float() * 255).round())
        if subsample and images.shape[1] == 3:
            luminance = _coded(planes[:, :1], tables[:, :1])
            chrominance = _doubled(_coded(_halved(planes[:, 1:]), tables[:, 1:]), planes)
            restored = torch.cat([luminance, chrominance], 1)
        else:
            restored = _coded(planes, tables)
        pixels = _from_planes(restored)
    return (pixels / 255).to(images.dtype)


def dct_matrix(like: Tensor, size: int = 8) -> Tensor:
    """The orthonormal cosine transform D, `y = D x`: row k is `c_k cos(pi (2 n + 1) k / 2 N)`."""
    n = torch.arange(size, dtype=torch.float64)
    matrix = torch.cos(math.pi * (2 * n + 1) * n[:, None] / (2 * size)) * math.sqrt(2 / size)
    matrix[0] = math.sqrt(1 / size)
    return matrix.to(like)


def block_dct(planes: Tensor) -> Tensor:
    """Cosine transform of the 8 x 8 blocks of [B, C, H, W]: [B, C, H / 8, W / 8, 8, 8]."""
    batch, channels, height, width = planes.shape
    blocks = planes.reshape(batch, channels, height // 8, 8, width // 8, 8).transpose(3, 4)
    matrix = dct_matrix(planes)
    return matrix @ blocks @ matrix.T


def block_idct(coefficients: Tensor) -> Tensor:
    """The inverse of `block_dct`."""
    matrix = dct_matrix(coefficients)
    blocks = (matrix.T @ coefficients @ matrix).transpose(3, 4)
    batch, channels, rows, _, columns, _ = blocks.shape
    return blocks.reshape(batch, channels, rows * 8, columns * 8)


def _coded(planes: Tensor, tables: Tensor) -> Tensor:
    """Planes around 0 after quantisation by the tables, as whole numbers of 8 bits."""
    height, width = planes.shape[2:]
    padded = F.pad(planes, (0, -width % 8, 0, -height % 8), mode="replicate")
    steps = tables[:, :, None, None]
    # In float64, since products of float32 matrices may be cut to 10 bits on a GPU.
    ratio = _on_grid(block_dct(padded.double())).float() / steps
    kept = ratio.sign() * (ratio.abs() + 0.5).floor() * steps
    restored = _on_grid(block_idct(kept.double())[..., :height, :width]).float()
    return (restored + 0.5).floor().clamp(-128, 127)


def _on_grid(values: Tensor) -> Tensor:
    """Multiples of 2^-8: coarser than the noise of the sums, finer than what a step decides."""
    return (values * 256).round() / 256


def _halved(planes: Tensor) -> Tensor:
    """Means over 2 x 2 pixels, ties up and down in turn along a row."""
    height, width = planes.shape[2:]
    even = F.pad(planes, (0, width % 2, 0, height % 2), mode="replicate")
    means = F.avg_pool2d(even, 2)
    tie = torch.tensor([0.25, 0.5], device=planes.device).repeat(-(-means.shape[3] // 2))
    return (means + tie[: means.shape[3]]).floor()


def _doubled(planes: Tensor, like: Tensor) -> Tensor:
    """Back to the size of `like`: 3/4 of the nearest and 1/4 of the next, along both axes."""
    wide = F.interpolate(planes, scale_factor=2, mode="bilinear", align_corners=False)
    return (wide[..., : like.shape[2], : like.shape[3]] + 0.5).floor()


def _to_planes(pixels: Tensor) -> Tensor:
    """Y, Cb, Cr around 0, from pixels in [0, 255]; whole numbers both."""
    if pixels.shape[1] == 1:
        return pixels - 128
    planes = _mixed(pixels, YCBCR)
    planes[:, 0] -= 128
    return planes


def _from_planes(planes: Tensor) -> Tensor:
    mixed = planes if planes.shape[1] == 1 else _mixed(planes, RGB)
    return (mixed + 128).clamp(0, 255)


def _mixed(planes: Tensor, matrix: tuple[tuple[int, ...], ...]) -> Tensor:
    """Sums in units of 2^-16, rounded: exact in float64, whatever the order."""
    weights = torch.tensor(matrix, device=planes.device, dtype=torch.float64)
    sums = torch.einsum("pc,bchw->bphw", weights, planes.double())
    return ((sums + 32768) / 65536).floor().float()


def _tables(quality: Tensor, channels: int) -> Tensor:
    """Steps of the quantisation of every image and plane, [B, C, 8, 8]."""
    luminance, chrominance = quality.new_tensor(LUMINANCE), quality.new_tensor(CHROMINANCE)
    tables = torch.stack([luminance, *[chrominance] * (channels - 1)])
    scale = torch.where(quality < 50, (5000 / quality).floor(), 200 - 2 * quality)
    scaled = (tables * scale[:, None, None, None] + 50) / 100
    return scaled.floor().clamp(1, 255)


def check_images(images: Tensor) -> None:
    """Refuse what is no batch of grey or colour images."""
    if images.dim() != 4 or images.shape[1] not in (1, 3) or not images.is_floating_point():
        raise ConfigError(
            "expected images [B, C, H, W] of 1 or 3 channels with pixels in [0, 1]; found "
            f"{images.dtype} of shape {tuple(images.shape)}"
        )
