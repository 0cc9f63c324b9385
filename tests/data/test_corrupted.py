import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from leanbayes.data.corrupted import cifar10_c, cifar100_c, imagenet_c
from leanbayes.errors import ConfigError, DataError

COUNT = 3  # images of a severity


def write(folder, *, names=("fog", "jpeg_compression"), classes=10, tiled=True):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, COUNT).astype(np.uint8)
    made = {name: rng.integers(0, 256, (5 * COUNT, 32, 32, 3), np.uint8) for name in names}
    for name, array in made.items():
        np.save(folder / f"{name}.npy", array)
    np.save(folder / "labels.npy", np.tile(labels, 5) if tiled else labels)
    return made, labels


def pixels(x):
    return (x * 255).round().byte().permute(0, 2, 3, 1).numpy()


@pytest.mark.parametrize("tiled", [True, False])
@pytest.mark.parametrize("below", ["", "CIFAR-10-C"])
def test_every_severity_is_its_block(tmp_path, tiled, below):
    made, labels = write(tmp_path / below, tiled=tiled)
    data = cifar10_c(root=str(tmp_path), normalize="none")
    names = ("fog", "jpeg_compression")
    assert list(data.extra) == [f"{name}-{level}" for name in names for level in range(1, 6)]
    for name in names:
        for level in range(1, 6):
            x, y = data.extra[f"{name}-{level}"].tensors()
            assert np.array_equal(pixels(x), made[name][(level - 1) * COUNT : level * COUNT])
            assert y.tolist() == labels.tolist()
    assert (data.train, data.test, data.name) == (None, None, "cifar10_c")


def test_examples_one_by_one_are_those_of_the_whole_also_in_workers_copies(tmp_path):
    write(tmp_path)
    part = cifar10_c(root=str(tmp_path)).extra["fog-4"]
    x, y = part.tensors()
    found = next(iter(DataLoader(part, batch_size=COUNT)))
    assert torch.equal(found[0], x)
    assert torch.equal(found[1], y)
    stored = pickle.dumps(part)
    assert len(stored) < 3000  # the file does not travel
    assert torch.equal(pickle.loads(stored)[2][0], x[2])


def test_the_constants_are_those_of_the_clean_set(tmp_path):
    made, _ = write(tmp_path)
    data = cifar10_c(root=str(tmp_path), corruptions=["fog"], severities=[5])
    assert list(data.extra) == ["fog-5"]
    scale = data.normalize
    assert scale.mean == (0.4914, 0.4822, 0.4465)
    expected = (made["fog"][-COUNT:] / 255 - scale.mean) / scale.std
    found = data.extra["fog-5"].tensors()[0].permute(0, 2, 3, 1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_clean_parts_come_along(tmp_path):
    write(tmp_path / "c", classes=100)
    rows = np.zeros((4, 3074), np.uint8)
    rows[:, 1] = [5, 99, 0, 7]
    for name in ("train", "test"):
        (tmp_path / "clean").mkdir(exist_ok=True)
        (tmp_path / "clean" / f"{name}.bin").write_bytes(rows.tobytes())
    root, clean = str(tmp_path / "c"), str(tmp_path / "clean")
    data = cifar100_c(root=root, clean=clean, validation=1)
    assert data.test[1].tolist() == [5, 99, 0, 7]
    assert data.validation[1].tolist() == [7]
    assert len(data.extra) == 10
    assert (data.name, len(data.classes)) == ("cifar100_c", 100)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((14, 32, 32, 3), np.uint8), "14 images for 15 labels"),
        (np.zeros((20, 32, 32, 3), np.uint8), "20 images for 15 labels"),
        (np.zeros((15, 3, 32, 32), np.uint8), r"expected uint8 \[N, H, W, 3\]"),
        (np.zeros((15, 32, 32, 3), np.float32), "is float32"),
        (np.array([{}]), "no npy of numbers"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, array, message):
    write(tmp_path)
    np.save(tmp_path / "fog.npy", array)
    with pytest.raises(DataError, match=message) as found:
        cifar10_c(root=str(tmp_path))
    assert "fog.npy" in str(found.value)


def test_a_damaged_header_is_refused(tmp_path):
    write(tmp_path)
    whole = (tmp_path / "fog.npy").read_bytes()
    for content in (b"", whole[:30], whole[:-1], whole.replace(b"), }", b"(((("), b"text"):
        (tmp_path / "fog.npy").write_bytes(content)
        with pytest.raises(DataError, match=r"fog\.npy is no npy of numbers"):
            cifar10_c(root=str(tmp_path))


def test_wrong_choices_are_refused(tmp_path):
    write(tmp_path)
    root = str(tmp_path)
    with pytest.raises(DataError, match="no corruption 'rain'; found fog, jpeg_compression"):
        cifar10_c(root=root, corruptions=["rain"])
    with pytest.raises(ConfigError, match=r"write corruptions=\['fog'\]"):
        cifar10_c(root=root, corruptions="fog")
    with pytest.raises(ConfigError, match=r"from 1 to 5, found \[0\]"):
        cifar10_c(root=root, severities=[0])
    with pytest.raises(ConfigError, match="clean='FOLDER'"):
        cifar10_c(root=root, normalize="data")
    with pytest.raises(DataError, match=r"expected CIFAR-10-C/labels\.npy or labels\.npy"):
        cifar10_c(root=str(tmp_path.parent))


def test_labels_are_checked_against_the_classes(tmp_path):
    write(tmp_path)
    np.save(tmp_path / "labels.npy", np.full(15, 10))
    with pytest.raises(DataError, match=r"label 10 of example 0 in .*labels\.npy"):
        cifar10_c(root=str(tmp_path))


def picture(path, value):
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(np.full((224, 224, 3), value, np.uint8)).save(path)


def test_imagenet_c_reads_corruption_severity_class(tmp_path):
    for level in range(1, 6):
        for label, name in enumerate(("n01", "n02")):
            picture(tmp_path / "fog" / str(level) / name / "a.png", 10 * level + label)
    data = imagenet_c(root=str(tmp_path), severities=[2, 5])
    assert list(data.extra) == ["fog-2", "fog-5"]
    assert data.classes == ("n01", "n02")
    x, y = data.extra["fog-5"][1]
    assert x.shape == (3, 224, 224)
    assert torch.allclose(data.normalize.undo(x[None]) * 255, torch.tensor(51.0), atol=1e-3)
    assert int(y) == 1


def test_imagenet_c_takes_the_labels_of_the_clean_set(tmp_path):
    for name in ("n00", "n01", "n02"):
        for part in ("train", "val"):
            picture(tmp_path / "clean" / part / name / "a.png", 0)
    picture(tmp_path / "c" / "fog" / "1" / "n02" / "a.png", 0)
    root, clean = str(tmp_path / "c"), str(tmp_path / "clean")
    data = imagenet_c(root=root, clean=clean, severities=[1])
    assert int(data.extra["fog-1"][0][1]) == 2
    assert len(data.test) == 3
    with pytest.raises(DataError, match="expected fog/2"):
        imagenet_c(root=root, severities=[2])
