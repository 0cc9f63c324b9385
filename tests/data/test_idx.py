import gzip
import struct
import sys

import numpy as np
import pytest
import torch

from leanbayes.data.idx import fashion_mnist, mnist, read_idx
from leanbayes.errors import ConfigError, DataError


def idx_bytes(array):
    return (
        bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + bytes(array)
    )


def write(folder, *, packed=False, train=12, test=5, seed=0):
    folder.mkdir(parents=True, exist_ok=True)
    rng, made = np.random.default_rng(seed), {}
    for part, count in (("train", train), ("t10k", test)):
        x = rng.integers(0, 256, (count, 28, 28), np.uint8)
        y = rng.integers(0, 10, count).astype(np.uint8)
        made[part] = x, y
        for kind, array in (("images-idx3", x), ("labels-idx1", y)):
            content = idx_bytes(np.ascontiguousarray(array))
            name = f"{part}-{kind}-ubyte" + (".gz" if packed else "")
            (folder / name).write_bytes(gzip.compress(content) if packed else content)
    return made


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("below", ["", "MNIST/raw"])
def test_mnist_reads_the_pixels_of_plain_and_packed_files(tmp_path, packed, below):
    made = write(tmp_path / below, packed=packed)
    data = mnist(root=str(tmp_path), validation=3)
    x, y = data.train
    expected = (torch.from_numpy(made["train"][0]).float() / 255 - 0.1307) / 0.3081
    assert torch.allclose(x[:, 0], expected[:9], atol=1e-6)
    assert torch.equal(y, torch.from_numpy(made["train"][1][:9]).long())
    assert torch.allclose(data.validation[0][:, 0], expected[9:], atol=1e-6)
    assert data.test[1].tolist() == made["t10k"][1].tolist()
    assert data.classes == tuple("0123456789")
    assert (data.name, data.task) == ("mnist", "classification")


def test_fashion_is_found_in_its_own_folder_and_keeps_its_names(tmp_path):
    made = write(tmp_path / "FashionMNIST" / "raw")
    data = fashion_mnist(root=str(tmp_path), validation=0, normalize="none")
    pixels = (data.test[0][:, 0] * 255).round().byte().numpy()
    assert np.array_equal(pixels, made["t10k"][0])
    assert data.validation is None
    assert data.classes[9] == "Ankle boot"


def test_data_constants_give_zero_mean_and_unit_spread_without_the_validation_part(tmp_path):
    write(tmp_path)
    data = mnist(root=str(tmp_path), validation=3, normalize="data")
    x = data.train[0].double()
    assert float(x.mean()) == pytest.approx(0, abs=1e-6)
    assert float(x.std(correction=0)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with nothing"),
        (b"\x00\x00\x0d\x03" + bytes(12), "starts with 00 00 0d 03"),
        (idx_bytes(np.zeros((2, 3, 3), np.uint8))[:-1], "holds 17 bytes; its header says 18"),
        (idx_bytes(np.zeros((2, 3, 3), np.uint8)) + b"x", "more bytes; its header says 18"),
        (bytes((0, 0, 8, 3)) + b"\xff" * 12, "impossible|header says"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, content, message):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as found:
        read_idx(path, 3)
    assert str(path) in str(found.value)


def test_a_packed_file_that_was_cut_is_named(tmp_path):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(idx_bytes(np.zeros((9, 9, 9), np.uint8)))[:-12])
    with pytest.raises(DataError, match="fetch it again"):
        read_idx(path, 3)


def test_missing_files_say_where_they_were_looked_for(tmp_path):
    with pytest.raises(DataError, match="MNIST/raw/train-images-idx3-ubyte"):
        mnist(root=str(tmp_path))
    with pytest.raises(DataError, match="does not exist"):
        mnist(root=str(tmp_path / "nowhere"))


def test_download_without_torchvision_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with pytest.raises(ConfigError, match="pip install torchvision"):
        mnist(root=str(tmp_path), download=True)


def test_download_asks_torchvision_only_for_missing_files(tmp_path, monkeypatch):
    calls = []

    class Loader:
        def __init__(self, root, download, train):
            calls.append((root, download, train))
            write(tmp_path / "MNIST" / "raw")

    module = type("datasets", (), {"MNIST": Loader})
    monkeypatch.setitem(sys.modules, "torchvision.datasets", module)
    for _ in range(2):
        data = mnist(root=str(tmp_path), download=True, validation=2)
        assert len(data.train[0]) == 10
    assert calls == [(str(tmp_path), True, True)]


def test_a_label_out_of_range_is_named(tmp_path):
    write(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.uint8([1, 2, 11, 3, 4])))
    with pytest.raises(DataError, match=r"label 11 of example 2 in .*t10k-labels.*0 to 9"):
        mnist(root=str(tmp_path), validation=1)


def test_different_numbers_of_images_and_labels_are_refused(tmp_path):
    write(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.uint8([1, 2])))
    with pytest.raises(DataError, match="5 inputs and 2 targets"):
        mnist(root=str(tmp_path), validation=1)


def test_a_validation_part_that_takes_everything_is_refused(tmp_path):
    write(tmp_path)
    with pytest.raises(ConfigError, match="validation=5000 does not fit 12 training examples"):
        mnist(root=str(tmp_path))


def test_unknown_constants_name_the_known_ones(tmp_path):
    write(tmp_path)
    with pytest.raises(ConfigError, match="data, usual, imagenet, none; found 'best'"):
        mnist(root=str(tmp_path), validation=1, normalize="best")
    with pytest.raises(ConfigError, match="3 channels, the images have 1"):
        mnist(root=str(tmp_path), validation=1, normalize="imagenet")
