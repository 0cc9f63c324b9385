"""Data sets: readers of the usual formats, two embedded sets, augmentation on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import signature
from typing import Any, Final

from leanbayes.data.arrays import npz
from leanbayes.data.augment import Chain, Crop, Cutout, Flip, augment_named
from leanbayes.data.cifar import cifar10, cifar100
from leanbayes.data.corrupted import cifar10_c, cifar100_c, imagenet_c
from leanbayes.data.dataset import Data, Normalize, Task
from leanbayes.data.decode import decode_images
from leanbayes.data.embedded_readers import digits
from leanbayes.data.embedded_readers import fashion_mini as fashion_mini_data
from leanbayes.data.embedded_sets import ImageSplits, digits_28, fashion_mini
from leanbayes.data.folders import image_folder, imagenet
from leanbayes.data.idx import fashion_mnist, mnist
from leanbayes.data.made_up import made_up
from leanbayes.data.pairs import Pairs, lfw_pairs, pairs_from_labels
from leanbayes.data.physionet import physionet2012
from leanbayes.data.segmentation import camvid, cityscapes
from leanbayes.data.svhn import svhn
from leanbayes.data.tables import table
from leanbayes.data.tiny_imagenet import tiny_imagenet
from leanbayes.data.uci import sklearn_table, uci
from leanbayes.errors import ConfigError

__all__ = [
    "READERS",
    "Chain",
    "Crop",
    "Cutout",
    "Data",
    "Flip",
    "ImageSplits",
    "Normalize",
    "Pairs",
    "Task",
    "augment_named",
    "decode_images",
    "digits_28",
    "fashion_mini",
    "pairs_from_labels",
    "read",
]

READERS: Final[Mapping[str, Callable[..., Data]]] = {
    reader.__name__: reader
    for reader in (
        camvid,
        cifar10,
        cifar10_c,
        cifar100,
        cifar100_c,
        cityscapes,
        digits,
        fashion_mini_data,
        fashion_mnist,
        image_folder,
        imagenet,
        imagenet_c,
        lfw_pairs,
        made_up,
        mnist,
        npz,
        physionet2012,
        sklearn_table,
        svhn,
        table,
        tiny_imagenet,
        uci,
    )
}


def read(reader: str, /, **options: Any) -> Data:
    """Read a data set by the name of its reader.

    Args:
        reader: A key of READERS.
        **options: The arguments of that reader, by name; most have a `root`.

    Raises:
        ConfigError: No reader has this name (the message lists the nearest), or an option is
            unknown or missing.
        DataError: Files are missing, damaged or of another format.

    Example:
        >>> read("sklearn_table", name="wine").task
        'classification'
    """
    if reader not in READERS:
        near = get_close_matches(reader.lower(), READERS, n=3) or sorted(READERS)
        raise ConfigError(f"no data are called {reader!r}; nearest: {', '.join(near)}")
    expected = signature(READERS[reader])
    try:
        expected.bind(**options)
    except TypeError as error:
        known = ", ".join(expected.parameters)
        raise ConfigError(f"data {reader!r}: {error}; its options are {known}") from None
    return READERS[reader](**options)
