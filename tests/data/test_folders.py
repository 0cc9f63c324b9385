import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from leanbayes.data.folders import image_folder, imagenet
from leanbayes.data.tiny_imagenet import tiny_imagenet
from leanbayes.errors import ConfigError, DataError

Image = pytest.importorskip("PIL.Image")


def save(path, value, height=8, width=8):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((height, width, 3), value, np.uint8)).save(path)


def folder(root, parts=("train", "val", "test"), classes=("cat", "dog"), count=4):
    value = 0
    for part in parts:
        for name in classes:
            for number in range(count):
                value += 1
                save(root / part / name / f"{number}.png", value)


def values(part):
    """The grey value of every picture, before it was normalised by (0, 1)."""
    return [round(float(part[index][0][0, 0, 0]) * 255) for index in range(len(part))]


def test_folders_are_classes_and_parts(tmp_path):
    folder(tmp_path)
    data = image_folder(root=str(tmp_path), normalize="none")
    assert data.classes == ("cat", "dog")
    assert values(data.train) == list(range(1, 9))
    assert values(data.validation) == list(range(9, 17))
    assert values(data.test) == list(range(17, 25))
    assert [int(data.train[i][1]) for i in range(8)] == [0] * 4 + [1] * 4


def test_a_single_further_part_is_the_test_part(tmp_path):
    folder(tmp_path, parts=("train", "valid"))
    data = image_folder(root=str(tmp_path))
    assert data.validation is None
    assert len(data.test) == 8


def test_held_out_pictures_come_from_every_class(tmp_path):
    folder(tmp_path, parts=("train",))
    data = image_folder(root=str(tmp_path), normalize="none", validation=2)
    assert values(data.validation) == [3, 7]
    assert values(data.train) == [1, 2, 4, 5, 6, 8]
    assert data.test is None


def test_constants_of_imagenet_are_applied_by_channel(tmp_path):
    folder(tmp_path, parts=("train",), count=1)
    x, y = image_folder(root=str(tmp_path)).train[1]
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    assert torch.allclose(x[:, 0, 0], (2 / 255 - mean) / std, atol=1e-6)
    assert (int(y), y.dtype) == (1, torch.int64)


def test_in_memory_gives_the_same_as_decoding_at_every_use(tmp_path):
    folder(tmp_path)
    lazy = image_folder(root=str(tmp_path), size=4)
    ready = image_folder(root=str(tmp_path), size=4, in_memory=True)
    for part in ("train", "validation", "test"):
        x, y = next(iter(DataLoader(getattr(lazy, part), batch_size=8)))
        assert torch.equal(getattr(ready, part)[0], x)
        assert torch.equal(getattr(ready, part)[1], y)


def test_unequal_pictures_need_a_size(tmp_path):
    folder(tmp_path, parts=("train",))
    save(tmp_path / "train" / "dog" / "9.png", 0, height=9)
    data = image_folder(root=str(tmp_path))
    with pytest.raises(DataError, match=r"9\.png is 9x8, the first picture is 8x8; write size=8"):
        data.train[8]
    assert image_folder(root=str(tmp_path), size=8).train[8][0].shape == (3, 8, 8)


def test_other_files_and_hidden_ones_are_left_out(tmp_path):
    folder(tmp_path, parts=("train",))
    (tmp_path / "train" / "cat" / "notes.txt").write_text("x")
    (tmp_path / "train" / "cat" / "._0.png").write_text("x")
    (tmp_path / "train" / ".cache").mkdir()
    save(tmp_path / "train" / "cat" / "far" / ".thumbnails" / "0.png", 0)
    assert len(image_folder(root=str(tmp_path)).train) == 8
    save(tmp_path / "train" / "cat" / "far" / "0.png", 0)
    assert len(image_folder(root=str(tmp_path)).train) == 9


def test_wrong_folders_are_named(tmp_path):
    with pytest.raises(DataError, match="expected train"):
        image_folder(root=str(tmp_path))
    (tmp_path / "train" / "cat").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no pictures in .*train"):
        image_folder(root=str(tmp_path))
    folder(tmp_path, parts=("train",))
    save(tmp_path / "test" / "bird" / "0.png", 0)
    with pytest.raises(DataError, match="'bird', which the training part lacks"):
        image_folder(root=str(tmp_path))


def test_a_damaged_picture_is_named_when_it_is_read(tmp_path):
    folder(tmp_path, parts=("train",))
    (tmp_path / "train" / "cat" / "2.png").write_text("no picture")
    with pytest.raises(DataError, match=r"2\.png cannot be read"):
        image_folder(root=str(tmp_path)).train[2]


def test_contradictions_are_refused(tmp_path):
    folder(tmp_path)
    with pytest.raises(ConfigError, match="validation part of its own"):
        image_folder(root=str(tmp_path), validation=2)
    with pytest.raises(ConfigError, match="imagenet, half, none; found 'data'"):
        image_folder(root=str(tmp_path), normalize="data")


def test_imagenet_cuts_224_from_the_middle_of_256(tmp_path):
    for part in ("train", "val"):
        ramp = np.tile(np.arange(300, dtype=np.float64)[:, None, None] * 255 / 299, (1, 256, 3))
        path = tmp_path / part / "n01440764" / f"{part}_1.JPEG"
        path.parent.mkdir(parents=True)
        Image.fromarray(ramp.round().astype(np.uint8)).save(path, format="JPEG", quality=95)
    data = imagenet(root=str(tmp_path))
    column = data.normalize.undo(data.test[0][0][None])[0, :, :, 100].mean(0) * 299
    assert data.test[0][0].shape == (3, 224, 224)
    assert torch.allclose(column, torch.arange(38.0, 262.0), atol=4)
    assert (data.validation, data.name) == (None, "imagenet")


def tiny(root):
    for label, wnid in enumerate(("n02", "n01")):
        for number in range(3):
            value = 10 * label + number
            save(root / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", value, 64, 64)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("n_0.JPEG\t0\t0\t1\t1\n")
    save(root / "val" / "images" / "val_0.JPEG", 100, 64, 64)
    save(root / "val" / "images" / "val_1.JPEG", 200, 64, 64)
    (root / "val" / "val_annotations.txt").write_text(
        "val_0.JPEG\tn02\t0\t0\t1\t1\nval_1.JPEG\tn01\t0\t0\t1\t1\n"
    )
    (root / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\ttoad\nn03\tother\n")


@pytest.mark.parametrize("below", ["", "tiny-imagenet-200"])
def test_tiny_imagenet_labels_its_val_part_by_the_table(tmp_path, below):
    tiny(tmp_path / below)
    data = tiny_imagenet(root=str(tmp_path), validation=2)
    assert data.classes == ("goldfish", "toad")
    assert [int(data.test[i][1]) for i in range(2)] == [1, 0]
    grey = [float(data.normalize.undo(data.test[i][0][None]).mean() * 255) for i in range(2)]
    assert grey == pytest.approx([100, 200], abs=1)
    assert data.validation.labels.tolist() == [0, 1]
    assert [path.split("_")[-1] for path in data.validation.paths] == ["1.JPEG", "1.JPEG"]


def test_tiny_imagenet_names_a_wrong_line(tmp_path):
    tiny(tmp_path)
    table = tmp_path / "val" / "val_annotations.txt"
    table.write_text("val_0.JPEG\tn02\t0\nval_1.JPEG\tn77\t0\n")
    with pytest.raises(DataError, match=r"line 2 of .*n77"):
        tiny_imagenet(root=str(tmp_path), validation=0)
    table.write_text("")
    with pytest.raises(DataError, match="is empty"):
        tiny_imagenet(root=str(tmp_path), validation=0)
