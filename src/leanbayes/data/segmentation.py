"""Street scenes with a label for every pixel: CamVid and Cityscapes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from leanbayes.data.dataset import Data, Normalize
from leanbayes.data.decode import Frame
from leanbayes.data.files import Array, find, found, load_arrays, optional
from leanbayes.data.images import IMAGENET, normalised, statistics
from leanbayes.errors import ConfigError, DataError

CAMVID: Final = (
    *("sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car"),
    *("pedestrian", "bicyclist"),
)
CAMVID_VOID: Final = len(CAMVID)

# Label ids of Cityscapes that are trained on, in the order of the train ids 0 to 18.
CITYSCAPES: Final[Mapping[int, str]] = {
    7: "road",
    8: "sidewalk",
    11: "building",
    12: "wall",
    13: "fence",
    17: "pole",
    19: "traffic light",
    20: "traffic sign",
    21: "vegetation",
    22: "terrain",
    23: "sky",
    24: "person",
    25: "rider",
    26: "car",
    27: "truck",
    28: "bus",
    31: "train",
    32: "motorcycle",
    33: "bicycle",
}
CITYSCAPES_VOID: Final = 255

Size = tuple[int, int] | None
Frames = Iterator[tuple[Tensor, Tensor]]


def camvid(*, root: str, size: Sequence[int] | None = None) -> Data:
    """Read CamVid: 701 street scenes with 11 classes, and void (label 11), which is ignored.

    G. Brostow et al., "Semantic object classes in video: A high-definition ground truth database",
    Pattern Recognition Letters 2009, in SegNet's split of 367 / 101 / 233 frames. Images are
    normalised by the training part. Memory: 20 bytes a pixel (605 MB at 180x240, 2.4 GB at
    360x480).

    Args:
        root: Folder with {train,val,test}/{images,labels}/*.png, or SegNet's {train,val,test}/*.png
            and {train,val,test}annot/*.png, or images.zip (train/..., val/..., test/...) and
            labels.npz (train, val, test [N, H, W]).
        size: (height, width) to scale whole frames to, images bilinearly (antialiased), labels by
            the nearest pixel; nothing is cut off.

    Raises:
        DataError: Files are missing, unreadable or of unequal size, or a label is above 11.
    """
    wanted = checked_size(size)
    train, validation, test = (_stacked(root, part, wanted) for part in ("train", "val", "test"))
    if train is None:
        raise DataError(
            f"no CamVid frames in {root}: expected train/, or images.zip and labels.npz"
        )
    scale = statistics(train[0])
    parts = [
        None if p is None else (normalised(p[0], scale), p[1]) for p in (train, validation, test)
    ]
    return Data(
        name="camvid",
        task="segmentation",
        train=parts[0],
        validation=parts[1],
        test=parts[2],
        classes=CAMVID,
        normalize=scale,
        ignore_index=CAMVID_VOID,
    )


def cityscapes(*, root: str, size: Sequence[int] | None = (256, 512), validation: int = 0) -> Data:
    """Read Cityscapes: 2,975 training and 500 validation scenes with 19 classes, file by file.

    M. Cordts et al., "The Cityscapes Dataset for Semantic Urban Scene Understanding", CVPR 2016.
    The labels of its own test part are not public: as in the literature, `test` is the folder val,
    and choices are made on the last `validation` training scenes. Images are normalised by
    ImageNet's constants; pixels of other classes are 255, which is ignored.

    Args:
        root: Folder with leftImg8bit/{train,val}/<city>/*_leftImg8bit.png and
            gtFine/{train,val}/<city>/*_gtFine_labelIds.png.
        size: (height, width) to scale whole scenes to, as `camvid` does; None keeps 1024x2048.
        validation: Training scenes that are held out.

    Raises:
        DataError: Files are missing, or unreadable when their turn comes.
    """
    wanted = checked_size(size)
    train = _scenes(root, "train")
    if not 0 <= validation < len(train):
        raise ConfigError(f"validation={validation}: expected 0 to {len(train) - 1} scenes")
    kept = len(train) - validation
    has_test = found(root, "leftImg8bit/val")
    return Data(
        name="cityscapes",
        task="segmentation",
        train=Scenes(train[:kept], wanted, IMAGENET),
        validation=Scenes(train[kept:], wanted, IMAGENET) if validation else None,
        test=Scenes(_scenes(root, "val"), wanted, IMAGENET) if has_test else None,
        classes=tuple(CITYSCAPES.values()),
        normalize=IMAGENET,
        ignore_index=CITYSCAPES_VOID,
    )


@dataclass(frozen=True, eq=False)
class Scenes(Dataset[tuple[Tensor, Tensor]]):
    """Cityscapes' scenes, decoded when asked for: image [3, H, W] and train ids [H, W].

    Attributes:
        files: Image and label file of every scene.
        size: (height, width), or None.
        normalize: Scale of the images.
    """

    files: Sequence[tuple[Path, Path]]
    size: Size
    normalize: Normalize

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image, labels = self.files[index]
        pixels = picture(image, image, self.size)
        ids = label_map(labels, labels, self.size)
        _check_alike(image, pixels, ids)
        return self.normalize(pixels.unsqueeze(0))[0], train_ids(ids, labels)


def train_ids(ids: Tensor, where: str | Path) -> Tensor:
    """Cityscapes' label ids as train ids 0 to 18; 255 for the classes that are not trained on.

    Example:
        >>> train_ids(torch.tensor([0, 7, 33, 255]), "file")
        tensor([255,   0,  18, 255])
    """
    known = (ids < 34) | (ids == CITYSCAPES_VOID)
    if not bool(known.all()):
        raise DataError(f"{where} has label {int(ids[~known][0])}; expected label ids 0 to 33")
    lookup = torch.full((256,), CITYSCAPES_VOID)
    lookup[list(CITYSCAPES)] = torch.arange(len(CITYSCAPES))
    return lookup[ids]


def checked_size(size: Sequence[int] | None) -> Size:
    """(height, width) of positive whole numbers, or None."""
    if size is None:
        return None
    if len(size) != 2 or min(size) < 1:
        raise ConfigError(f"size={size}; write size=(height, width), or None to keep it")
    return size[0], size[1]


def picture(source: Any, where: str | Path, size: Size) -> Tensor:
    """Bytes [3, H, W] of an image file, the whole of it scaled bilinearly."""
    pixels = _decoded(source, where, size, labels=False)
    return torch.from_numpy(pixels).permute(2, 0, 1)


def label_map(source: Any, where: str | Path, size: Size) -> Tensor:
    """Labels int64 [H, W] of a grey or palette image, scaled by the nearest pixel."""
    return torch.from_numpy(_decoded(source, where, size, labels=True)).long()


def _decoded(source: Any, where: str | Path, size: Size, *, labels: bool) -> Array:
    open_image = optional("PIL.Image", "Pillow").open
    try:
        with open_image(source) as opened:
            mode = opened.mode
            pixels: Array = np.array(_scaled(opened if labels else opened.convert("RGB"), size))
    except Exception as error:  # what a damaged picture raises depends on its format
        raise DataError(f"{where} cannot be read as a picture: {error}") from error
    if labels and mode not in ("L", "P"):
        raise DataError(
            f"{where} is a label map of mode {mode}; expected one byte a pixel (grey or palette), "
            "not colours"
        )
    return pixels


def _scaled(image: Any, size: Size) -> Any:
    """A Pillow image of this size: label maps by the nearest pixel, RGB as predictions do it."""
    if size is None:
        return image
    if image.mode == "RGB":
        return Frame(*size, whole=True).cut(image)
    return image.resize(size[::-1], optional("PIL.Image", "Pillow").Resampling.NEAREST)


def _stacked(root: str, part: str, size: Size) -> tuple[Tensor, Tensor] | None:
    """Bytes [N, 3, H, W] and labels [N, H, W] of a part of CamVid; None where it is absent."""
    packed = found(root, "images.zip")
    frames = list(_packed_frames(root, part, size) if packed else _frames(root, part, size))
    if not frames:
        return None
    images, labels = zip(*frames, strict=True)
    if len({image.shape for image in images}) > 1:
        raise DataError(f"frames of {root} ({part}) differ in size; write size=(height, width)")
    return torch.stack(images), torch.stack(labels)


def _packed_frames(root: str, part: str, size: Size) -> Frames:
    path = find(root, "images.zip", what="CamVid")
    labels = load_arrays(find(root, "labels.npz", what="the labels of CamVid")).get(part)
    if labels is not None and (labels.dtype != np.uint8 or labels.ndim != 3):
        raise DataError(
            f"{part} in labels.npz is {labels.dtype} {labels.shape}; expected uint8 [N, H, W]"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(
                n for n in archive.namelist() if n.startswith(f"{part}/") and n[-1] != "/"
            )
            files = [(name, io.BytesIO(archive.read(name))) for name in names]
    except Exception as error:  # damage shows as one of many errors, by the way of packing
        raise DataError(f"{path} is not a zip file that can be read: {error}") from error
    if len(files) != (0 if labels is None else len(labels)):
        count = "no labels" if labels is None else f"{len(labels)} labels"
        raise DataError(f"{path} has {len(files)} images of {part}, labels.npz {count}")
    for (name, file), ids in zip(files, () if labels is None else labels, strict=True):
        yield _frame(picture(file, name, size), _resized(ids, size), f"{path} ({name})")


def _resized(ids: Array, size: Size) -> Tensor:
    image = optional("PIL.Image", "Pillow").fromarray(ids)
    return torch.from_numpy(np.array(_scaled(image, size))).long()


def _frames(root: str, part: str, size: Size) -> Frames:
    if not found(root, part):
        return
    folder = find(root, part, what="CamVid")
    segnet = not (folder / "images").is_dir()
    images = folder if segnet else folder / "images"
    labels = find(root, f"{part}annot" if segnet else f"{part}/labels", what="labels of CamVid")
    for path in sorted(images.glob("*.png")):
        ids = label_map(_partner(path, labels / path.name), labels / path.name, size)
        yield _frame(picture(path, path, size), ids, path)


def _frame(pixels: Tensor, ids: Tensor, where: str | Path) -> tuple[Tensor, Tensor]:
    _check_alike(where, pixels, ids)
    if int(ids.max()) > CAMVID_VOID:
        raise DataError(f"{where} has label {int(ids.max())}; expected 0 to 10, and 11 for void")
    return pixels, ids


def _check_alike(where: str | Path, pixels: Tensor, ids: Tensor) -> None:
    if pixels.shape[1:] != ids.shape:
        raise DataError(
            f"{where} has {tuple(pixels.shape[1:])} pixels, its label map {tuple(ids.shape)}; "
            "expected as many"
        )


def _scenes(root: str, part: str) -> list[tuple[Path, Path]]:
    folder = find(root, f"leftImg8bit/{part}", what="Cityscapes")
    labels = find(root, f"gtFine/{part}", what="the fine labels of Cityscapes")
    images = sorted(folder.glob("*/*_leftImg8bit.png"))
    if not images:
        raise DataError(f"{folder} holds no <city>/*_leftImg8bit.png")
    return [(path, _partner(path, labels / _label_name(path))) for path in images]


def _label_name(path: Path) -> str:
    name = path.name.replace("_leftImg8bit.png", "_gtFine_labelIds.png")
    return f"{path.parent.name}/{name}"


def _partner(path: Path, labels: Path) -> Path:
    if not labels.is_file():
        raise DataError(f"{path} has no label map; expected {labels}")
    return labels
