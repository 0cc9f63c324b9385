"""CIFAR-10 and CIFAR-100: the pickled batches and the binary ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from leanbayes.data.dataset import Data, Normalize
from leanbayes.data.files import fetch, find, found, labels, tensor
from leanbayes.data.images import image_data
from leanbayes.data.plain_pickle import load_plain
from leanbayes.errors import DataError

_PIXELS: Final = 3 * 32 * 32
_TEN: Final = "airplane automobile bird cat deer dog frog horse ship truck"
_HUNDRED: Final = """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy
bridge bus butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach
couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo
keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse
mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy
porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail
snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
train trout tulip turtle wardrobe whale willow_tree wolf woman worm"""
CIFAR10_CLASSES: Final = tuple(_TEN.split())
CIFAR100_CLASSES: Final = tuple(_HUNDRED.split())


class Layout(NamedTuple):
    """Where a set keeps its files, and where a record keeps its label."""

    name: str
    loader: str
    pickled: str
    binary: str
    train: tuple[str, ...]
    test: str
    key: str
    label_bytes: int
    classes: tuple[str, ...]
    usual: Normalize


CIFAR10: Final = Layout(
    name="cifar10",
    loader="CIFAR10",
    pickled="cifar-10-batches-py",
    binary="cifar-10-batches-bin",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    key="labels",
    label_bytes=1,
    classes=CIFAR10_CLASSES,
    usual=Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
)
CIFAR100: Final = Layout(
    name="cifar100",
    loader="CIFAR100",
    pickled="cifar-100-python",
    binary="cifar-100-binary",
    train=("train",),
    test="test",
    key="fine_labels",
    label_bytes=2,
    classes=CIFAR100_CLASSES,
    usual=Normalize((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
)


def cifar10(
    *, root: str, validation: int = 5000, normalize: str = "usual", download: bool = False
) -> Data:
    """Small colour photographs of ten classes, 32x32, 50,000 + 10,000.

    Args:
        root: Holds cifar-10-batches-py or cifar-10-batches-bin, or is one of them.
        validation: Training examples held out, the last ones.
        normalize: "usual", "imagenet", "data" or "none".
        download: Let torchvision fetch missing files.
    """
    return _read(CIFAR10, root, validation, normalize, download)


def cifar100(
    *, root: str, validation: int = 5000, normalize: str = "usual", download: bool = False
) -> Data:
    """Small colour photographs of a hundred classes, 32x32, 50,000 + 10,000.

    Args:
        root: Holds cifar-100-python or cifar-100-binary, or is one of them.
        validation: Training examples held out, the last ones.
        normalize: "usual", "imagenet", "data" or "none".
        download: Let torchvision fetch missing files.
    """
    return _read(CIFAR100, root, validation, normalize, download)


def _read(layout: Layout, root: str, validation: int, normalize: str, download: bool) -> Data:
    probe = [f"{layout.pickled}/{layout.test}", f"{layout.binary}/{layout.test}.bin"]
    probe += [layout.test, f"{layout.test}.bin"]
    if download and not found(root, *probe):
        fetch(layout.loader, root, splits=[{"train": True}])
    test = find(root, *probe, what=f"{layout.name} batches")
    files = [test.with_name(name + test.suffix) for name in layout.train]
    parts = [_batch(layout, path) for path in files]
    return image_data(
        name=layout.name,
        train=(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])),
        test=_batch(layout, test),
        classes=layout.classes,
        validation=validation,
        normalize=normalize,
        usual=layout.usual,
    )


def _batch(layout: Layout, path: Path) -> tuple[Tensor, Tensor]:
    if not path.is_file():
        raise DataError(f"{path} is missing; {layout.name} needs all its batches: fetch it again")
    return _binary(layout, path) if path.suffix == ".bin" else _pickled(layout, path)


def _pickled(layout: Layout, path: Path) -> tuple[Tensor, Tensor]:
    """A dict with data, uint8 [N, 3072] (channel, row, column), and a list of labels."""
    stored: Any = load_plain(path)
    keys = {_text(k): v for k, v in stored.items()} if isinstance(stored, dict) else {}
    if not {"data", layout.key} <= keys.keys():
        raise DataError(f"{path} holds {sorted(keys)}; expected a dict with data and {layout.key}")
    data, marks = keys["data"], keys[layout.key]
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (_PIXELS,):
        kind = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise DataError(f"data in {path} is {kind}; expected uint8 [N, {_PIXELS}]")
    if not isinstance(marks, (list, np.ndarray)) or len(marks) != len(data):
        count = len(marks) if isinstance(marks, (list, np.ndarray)) else type(marks).__name__
        raise DataError(f"{path} holds {len(data)} images and {count} labels; expected one each")
    return tensor(data).view(-1, 3, 32, 32), labels(marks, len(layout.classes), path)


def _text(key: Any) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _binary(layout: Layout, path: Path) -> tuple[Tensor, Tensor]:
    """Records of label bytes (the last one is the fine label) and 3,072 bytes of pixels."""
    raw = np.fromfile(path, np.uint8)
    record = layout.label_bytes + _PIXELS
    if len(raw) == 0 or len(raw) % record:
        raise DataError(f"{path} holds {len(raw):,} bytes; expected records of {record:,}")
    rows = raw.reshape(-1, record)
    y = labels(rows[:, layout.label_bytes - 1], len(layout.classes), path)
    return tensor(rows[:, layout.label_bytes :]).view(-1, 3, 32, 32), y
