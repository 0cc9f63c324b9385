"""The two small real data sets that ship with the package, so that the demo needs no network.

Licences, authors and hashes are in embedded/NOTICE.md.
"""

from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

FASHION_CLASSES: Final = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSplits:
    """Images and labels of a classification task, split into training and test part.

    Attributes:
        x_train: Training images, float32 [N, C, H, W] in [0, 1].
        y_train: Training labels, int64 [N].
        x_test: Test images, as x_train.
        y_test: Test labels, as y_train.
        classes: Name of every label.
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: tuple[str, ...]


def fashion_mini() -> ImageSplits:
    """Read a class-balanced subset of Fashion-MNIST: 6,000 training and 2,000 test images.

    The images are [N, 1, 28, 28]; H. Xiao et al., "Fashion-MNIST", 2017, arXiv:1708.07747.

    Example:
        >>> data = fashion_mini()
        >>> data.x_train.shape, data.classes[data.y_test[0]]
        (torch.Size([6000, 1, 28, 28]), 'Shirt')
    """
    arrays = _read("fashion_mini.npz")
    return ImageSplits(
        x_train=_images(arrays["x_train"]),
        y_train=arrays["y_train"].long(),
        x_test=_images(arrays["x_test"]),
        y_test=arrays["y_test"].long(),
        classes=FASHION_CLASSES,
    )


def digits_28() -> Tensor:
    """Read the UCI optical digits as float32 [1797, 1, 28, 28] in [0, 1].

    The 8x8 originals (E. Alpaydin and C. Kaynak, 1998, doi:10.24432/C50P49) are resized
    bilinearly: images that no class of Fashion-MNIST explains.

    Example:
        >>> digits_28().shape
        torch.Size([1797, 1, 28, 28])
    """
    small = _read("digits.npz")["x"].float().div(16).view(-1, 1, 8, 8)
    return interpolate(small, size=(28, 28), mode="bilinear", align_corners=False)


def digits_labels() -> Tensor:
    """Read which digit each image of `digits_28` shows, int64 [1797]."""
    return _read("digits.npz")["y"].long()


def _images(grey: Tensor) -> Tensor:
    """Turn uint8 [N, H, W] into float32 [N, 1, H, W] in [0, 1]."""
    return grey.unsqueeze(1).float().div(255)


def _read(name: str) -> dict[str, Tensor]:
    """Read every array of an embedded npz, from a folder or from inside a zipped package."""
    source = files("leanbayes.data") / "embedded" / name
    with source.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays.files}
