import sys

import numpy as np
import pytest

from leanbayes.data.svhn import svhn
from leanbayes.errors import ConfigError, DataError

io = pytest.importorskip("scipy.io")


def write(folder, *, dtype=np.uint8, train=(1, 10, 3, 9, 10), test=(2, 10)):
    rng, made = np.random.default_rng(0), {}
    for part, digits in (("train", train), ("test", test)):
        x = rng.integers(0, 256, (32, 32, 3, len(digits)), np.uint8)
        made[part] = x
        content = {"X": x, "y": np.array(digits, dtype)[:, None]}
        io.savemat(folder / f"{part}_32x32.mat", content, do_compression=True)
    return made


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_svhn_turns_label_ten_into_the_digit_zero(tmp_path, dtype):
    made = write(tmp_path, dtype=dtype)
    data = svhn(root=str(tmp_path), validation=2, normalize="none")
    assert data.train[1].tolist() == [1, 0, 3]
    assert data.validation[1].tolist() == [9, 0]
    assert data.test[1].tolist() == [2, 0]
    pixels = (data.test[0] * 255).round().byte().numpy()
    for example in range(2):
        for channel in range(3):
            assert np.array_equal(pixels[example, channel], made["test"][:, :, channel, example])


@pytest.mark.parametrize("label", [0, 11])
def test_labels_outside_one_to_ten_are_refused(tmp_path, label):
    write(tmp_path, test=(2, label))
    with pytest.raises(DataError, match=r"example 1 in .*test_32x32\.mat"):
        svhn(root=str(tmp_path), validation=1)


def test_other_files_are_refused(tmp_path):
    write(tmp_path)
    path = tmp_path / "test_32x32.mat"
    io.savemat(path, {"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1), np.uint8)})
    with pytest.raises(DataError, match="X float64"):
        svhn(root=str(tmp_path), validation=1)
    io.savemat(path, {"Z": np.zeros(3)})
    with pytest.raises(DataError, match="lacks X and y"):
        svhn(root=str(tmp_path), validation=1)
    for content in (b"", b"MATLAB 7.3 MAT-file, hdf5" * 30, b"<html>not found</html>" * 20):
        path.write_bytes(content)
        with pytest.raises(DataError, match="no MATLAB file of version 5"):
            svhn(root=str(tmp_path), validation=1)
    path.unlink()
    with pytest.raises(DataError, match=r"expected test_32x32\.mat"):
        svhn(root=str(tmp_path), validation=1)


def test_without_scipy_it_says_what_to_install(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(ConfigError, match="pip install scipy"):
        svhn(root=str(tmp_path), validation=1)
