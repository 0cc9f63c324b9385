import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from leanbayes.data.segmentation import CAMVID, CITYSCAPES, camvid, cityscapes, train_ids
from leanbayes.errors import ConfigError, DataError

image = pytest.importorskip("PIL.Image")
PARTS = {"train": 3, "val": 2, "test": 1}


def frames(part, size=(4, 6)):
    generator = np.random.default_rng(len(part))
    count = PARTS[part]
    pixels = generator.integers(0, 256, (count, *size, 3), np.uint8)
    return pixels, generator.integers(0, 12, (count, *size), np.uint8)


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(array).save(path)


def write_folders(root, segnet):
    for part in PARTS:
        pixels, labels = frames(part)
        images, maps = (part, f"{part}annot") if segnet else (f"{part}/images", f"{part}/labels")
        for i in range(len(pixels)):
            save(root / images / f"{i:04d}.png", pixels[i])
            save(root / maps / f"{i:04d}.png", labels[i])


def write_packed(root):
    with zipfile.ZipFile(root / "images.zip", "w") as archive:
        for part in PARTS:
            for i, pixels in enumerate(frames(part)[0]):
                stream = io.BytesIO()
                image.fromarray(pixels).save(stream, "PNG")
                archive.writestr(f"{part}/{i:04d}.png", stream.getvalue())
    np.savez(root / "labels.npz", **{part: frames(part)[1] for part in PARTS})


WRITERS = {
    "folders": lambda root: write_folders(root, segnet=False),
    "segnet": lambda root: write_folders(root, segnet=True),
    "packed": write_packed,
}


@pytest.fixture(params=WRITERS)
def root(request, tmp_path):
    WRITERS[request.param](tmp_path)
    return str(tmp_path)


def test_camvid_gives_every_pixel_and_label_in_each_layout(root):
    data = camvid(root=root)
    for part, found in zip(PARTS, (data.train, data.validation, data.test), strict=True):
        pixels, labels = frames(part)
        raw = data.normalize.undo(found[0]).permute(0, 2, 3, 1) * 255
        np.testing.assert_allclose(raw, pixels, atol=1e-3)
        assert np.array_equal(found[1], labels)
        assert found[1].dtype == torch.int64


def test_camvid_is_normalised_by_its_training_part(root):
    data = camvid(root=root)
    pixels = frames("train")[0] / 255
    np.testing.assert_allclose(data.normalize.mean, pixels.mean((0, 1, 2)), rtol=1e-9)
    np.testing.assert_allclose(data.normalize.std, pixels.std((0, 1, 2)), rtol=1e-9)


def test_camvid_has_eleven_classes_and_ignores_void(root):
    data = camvid(root=root)
    assert data.ignore_index == len(data.classes) == len(CAMVID) == 11
    assert data.task == "segmentation"


@pytest.mark.parametrize("size", [(2, 3), (3, 5), (8, 10)])
def test_whole_frames_are_scaled_images_bilinearly_and_labels_by_pixel(root, size):
    data = camvid(root=root, size=size)
    pixels, labels = (torch.from_numpy(array) for array in frames("train"))
    scaled = torch.nn.functional.interpolate(
        pixels.permute(0, 3, 1, 2).float(), size=size, mode="bilinear", antialias=True
    )
    raw = data.normalize.undo(data.train[0]) * 255
    torch.testing.assert_close(raw, scaled, atol=1.01, rtol=0)  # Pillow rounds to bytes, twice
    at = [((torch.arange(n) + 0.5) * m / n).long() for n, m in zip(size, (4, 6), strict=True)]
    assert torch.equal(data.train[1], labels[:, at[0]][:, :, at[1]].long())


def test_camvid_without_files_or_parts_says_what_is_expected(tmp_path):
    with pytest.raises(DataError, match=r"train/, or images\.zip"):
        camvid(root=str(tmp_path))
    save(tmp_path / "train" / "images" / "0.png", frames("test")[0][0])
    with pytest.raises(DataError, match="train/labels"):
        camvid(root=str(tmp_path))
    (tmp_path / "train" / "labels").mkdir()
    with pytest.raises(DataError, match=r"has no label map; expected .*labels/0\.png"):
        camvid(root=str(tmp_path))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full((4, 6), 12, np.uint8), "has label 12; expected 0 to 10, and 11 for void"),
        (np.zeros((4, 6, 3), np.uint8), "mode RGB; expected one byte a pixel"),
        (np.zeros((4, 5), np.uint8), r"has \(4, 6\) pixels, its label map \(4, 5\)"),
    ],
)
def test_camvid_refuses_a_wrong_label_map(tmp_path, labels, message):
    write_folders(tmp_path, segnet=True)
    save(tmp_path / "trainannot" / "0001.png", labels)
    with pytest.raises(DataError, match=message):
        camvid(root=str(tmp_path))


def test_camvid_names_a_file_that_cannot_be_read(tmp_path):
    write_folders(tmp_path, segnet=True)
    (tmp_path / "val" / "0001.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"0001\.png cannot be read as a picture"):
        camvid(root=str(tmp_path))


def test_camvid_refuses_frames_of_unequal_size_unless_scaled(tmp_path):
    write_folders(tmp_path, segnet=True)
    pixels, labels = frames("train", size=(8, 6))
    save(tmp_path / "train" / "0001.png", pixels[0])
    save(tmp_path / "trainannot" / "0001.png", labels[0])
    with pytest.raises(DataError, match=r"differ in size; write size=\(height, width\)"):
        camvid(root=str(tmp_path))
    assert camvid(root=str(tmp_path), size=[2, 2]).train[0].shape == (3, 3, 2, 2)


def test_camvid_refuses_a_damaged_or_incomplete_archive(tmp_path):
    write_packed(tmp_path)
    np.savez(tmp_path / "labels.npz", train=frames("train")[1][:2])
    with pytest.raises(DataError, match=r"has 3 images of train, labels\.npz 2 labels"):
        camvid(root=str(tmp_path))
    np.savez(tmp_path / "labels.npz", train=np.zeros((3, 4)))
    with pytest.raises(DataError, match=r"train in labels\.npz is float64 \(3, 4\)"):
        camvid(root=str(tmp_path))
    (tmp_path / "images.zip").write_bytes(b"PK no zip")
    np.savez(tmp_path / "labels.npz", train=frames("train")[1])
    with pytest.raises(DataError, match="is not a zip file"):
        camvid(root=str(tmp_path))


@pytest.mark.parametrize("size", [(4,), (0, 3), (1, 2, 3)])
def test_a_wrong_size_is_refused(tmp_path, size):
    with pytest.raises(ConfigError, match=r"write size=\(height, width\)"):
        camvid(root=str(tmp_path), size=size)


@pytest.fixture
def streets(tmp_path):
    """Three training scenes of two cities and one for testing, ids 0 to 33 side by side."""
    ids = np.arange(34, dtype=np.uint8).reshape(2, 17)
    for part, cities in {"train": ("aachen", "aachen", "zurich"), "val": ("ulm",)}.items():
        for i, city in enumerate(cities):
            stem = f"{city}/{city}_00000{i}_000019"
            pixels = np.full((2, 17, 3), 10 * (i + 1), np.uint8)
            save(tmp_path / "leftImg8bit" / part / f"{stem}_leftImg8bit.png", pixels)
            save(tmp_path / "gtFine" / part / f"{stem}_gtFine_labelIds.png", np.roll(ids, i, 1))
    return tmp_path


def test_cityscapes_turns_label_ids_into_the_nineteen_train_ids(streets):
    data = cityscapes(root=str(streets), size=None)
    _, labels = data.test[0]
    expected = [list(CITYSCAPES).index(i) if i in CITYSCAPES else 255 for i in range(34)]
    assert labels.flatten().tolist() == expected
    assert sorted(set(expected)) == [*range(19), 255]
    assert data.classes[:2] == ("road", "sidewalk")
    assert data.classes[18] == "bicycle"
    assert data.ignore_index == 255


def test_cityscapes_reads_scene_by_scene_and_holds_out_the_last(streets):
    data = cityscapes(root=str(streets), size=None, validation=1)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [2, 1, 1]
    for part, byte in ((data.train, 10), (data.validation, 30)):
        raw = data.normalize.undo(part[0][0].unsqueeze(0)) * 255
        torch.testing.assert_close(raw, torch.full_like(raw, byte), atol=1e-3, rtol=0)


def test_cityscapes_is_a_dataset_that_a_loader_batches(streets):
    data = cityscapes(root=str(streets), size=(4, 8))
    (images, labels) = next(iter(torch.utils.data.DataLoader(data.train, batch_size=3)))
    assert images.shape == (3, 3, 4, 8)
    assert labels.shape == (3, 4, 8)
    assert set(labels.unique().tolist()) <= {*range(19), 255}


def test_cityscapes_scales_whole_scenes(streets):
    """A dark left half stays the left half, in image and labels, at any proportions."""
    left = np.repeat([[7] * 8 + [23] * 8], 4, 0).astype(np.uint8)
    pixels = np.where(left[..., None] == 7, 0, 255).repeat(3, -1).astype(np.uint8)
    stem = streets / "leftImg8bit" / "val" / "ulm" / "ulm_000000_000019_leftImg8bit.png"
    save(stem, pixels)
    named = str(stem).replace("leftImg8bit", "gtFine").replace("gtFine.", "gtFine_labelIds.")
    save(Path(named), left)
    for size in ((4, 4), (6, 2), (3, 16)):
        data = cityscapes(root=str(streets), size=size)
        image, labels = data.test[0]
        raw = data.normalize.undo(image[None])[0, 0]
        half = size[1] // 2
        assert (labels == torch.tensor([0] * half + [10] * half)).all()
        assert (raw[:, 0] < 0.3).all()
        assert (raw[:, -1] > 0.7).all()


def test_cityscapes_names_what_is_missing(streets):
    label = next((streets / "gtFine" / "val").rglob("*.png"))
    label.unlink()
    with pytest.raises(DataError, match="has no label map"):
        cityscapes(root=str(streets))
    with pytest.raises(DataError, match="leftImg8bit/train"):
        cityscapes(root=str(streets / "gtFine"))
    with pytest.raises(ConfigError, match="expected 0 to 2 scenes"):
        cityscapes(root=str(streets), validation=3)


def test_unknown_label_ids_are_refused():
    with pytest.raises(DataError, match="has label 34; expected label ids 0 to 33"):
        train_ids(torch.tensor([1, 34]), "file")
