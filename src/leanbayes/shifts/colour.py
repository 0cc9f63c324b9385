"""Between colour and grey."""

from __future__ import annotations

from torch import Tensor

LUMA = (0.299, 0.587, 0.114)


def grey(images: Tensor) -> Tensor:
    """The luminance of colour images, [B, 1, H, W]; grey ones as they are."""
    if images.shape[1] == 1:
        return images
    weights = images.new_tensor(LUMA).reshape(1, 3, 1, 1)
    return (images * weights).sum(1, keepdim=True)


def like_channels(colours: Tensor, images: Tensor) -> Tensor:
    """Colours [B, 3, ...] as they are for colour images, and their luminance for grey ones."""
    return grey(colours) if images.shape[1] == 1 else colours
