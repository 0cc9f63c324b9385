"""Readers of the data that ship with the package: no files are needed."""

from __future__ import annotations

from leanbayes.data.dataset import Data
from leanbayes.data.embedded_sets import digits_28, digits_labels
from leanbayes.data.embedded_sets import fashion_mini as fashion_images
from leanbayes.errors import ConfigError

HELD_OUT = 1000


def fashion_mini(*, images: int | None = None, held_out: int = HELD_OUT) -> Data:
    """Embedded Fashion-MNIST: 6,000 training and 2,000 test images, 28x28, grey.

    Args:
        images: Training images, from the first on; all that are not held out if None.
        held_out: The last training images, held out for validation.
    """
    full = fashion_images()
    x, y = full.x_train, full.y_train
    if not 0 <= held_out < len(x) or (images is not None and not 1 <= images <= len(x) - held_out):
        raise ConfigError(
            f"of {len(x)} images held_out={held_out} are for validation and images={images} for "
            "training: expected held_out from 0 on and at least one image, and no more of both "
            "than there are"
        )
    first = slice(0, len(x) - held_out if images is None else images)
    return Data(
        name="fashion_mini",
        task="classification",
        train=(x[first], y[first]),
        validation=(x[-held_out:], y[-held_out:]) if held_out else None,
        test=(full.x_test, full.y_test),
        classes=full.classes,
    )


def digits(*, held_out: int = 597) -> Data:
    """Embedded UCI digits, resized to 28x28: 1,797 images, the last ones for tests.

    Args:
        held_out: Test images.
    """
    x, y = digits_28(), digits_labels()
    if not 1 <= held_out < len(x):
        raise ConfigError(f"held_out is a number from 1 to {len(x) - 1}, found {held_out}")
    return Data(
        name="digits",
        task="classification",
        train=(x[:-held_out], y[:-held_out]),
        test=(x[-held_out:], y[-held_out:]),
        classes=tuple("0123456789"),
    )
