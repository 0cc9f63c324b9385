import doctest
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from leanbayes.data import digits_28, embedded_sets, fashion_mini

FOLDER = Path(embedded_sets.__file__).parent / "embedded"
SHA256 = {
    ("fashion_mini", "x_train"): "2cc21eb51ea63603a106c9f35e0ac3680e82e9c89aca6c154c19ff85887ec17d",
    ("fashion_mini", "y_train"): "64d5c4b6c23f8791a80aef395002fd4fceb205cbd920f6892c056fb0bcabe047",
    ("fashion_mini", "x_test"): "d1d4157f3e76f859c4b380a2a44d40611e995b92f4cef47efb9b115260261c36",
    ("fashion_mini", "y_test"): "d35da902478f19dd65c7d1e72b8708031f4f43a93c9ecc3bf0d6fd594cbf8fa8",
    ("digits", "x"): "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3",
    ("digits", "y"): "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0",
}


def stored(name):
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


@pytest.fixture(scope="module")
def fashion():
    return fashion_mini()


def test_arrays_have_the_recorded_hashes():
    found = {
        (name, key): hashlib.sha256(array.tobytes()).hexdigest()
        for name in ("fashion_mini", "digits")
        for key, array in stored(name).items()
    }
    assert found == SHA256


def test_notice_names_every_hash_and_both_licences():
    notice = (FOLDER / "NOTICE.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\b[0-9a-f]{64}\b", notice)) == set(SHA256.values())
    assert "Copyright © 2017 Zalando SE" in notice
    assert "Permission is hereby granted, free of charge" in notice
    assert "10.24432/C50P49" in notice
    assert "CC BY 4.0" in notice


def test_files_stay_small():
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir() if path.is_file()}
    assert set(sizes) == {"NOTICE.md", "digits.npz", "fashion_mini.npz"}
    assert sizes["fashion_mini.npz"] <= 3_500_000
    assert sum(sizes.values()) <= 4_000_000


def test_fashion_is_balanced_and_typed(fashion):
    assert fashion.y_train.bincount().tolist() == [600] * 10
    assert fashion.y_test.bincount().tolist() == [200] * 10
    assert len(fashion.classes) == 10
    assert fashion.classes[0] == "T-shirt/top"
    assert fashion.classes[9] == "Ankle boot"
    for images, labels in ((fashion.x_train, fashion.y_train), (fashion.x_test, fashion.y_test)):
        assert images.dtype == torch.float32
        assert labels.dtype == torch.int64
        assert images.shape == (len(labels), 1, 28, 28)


def test_fashion_pixels_are_the_stored_bytes(fashion):
    arrays = stored("fashion_mini")
    for key, images in (("x_train", fashion.x_train), ("x_test", fashion.x_test)):
        assert images.min() == 0
        assert images.max() == 1
        assert np.array_equal((images[:, 0] * 255).round().byte().numpy(), arrays[key])


def test_fashion_parts_share_no_image(fashion):
    train = {image.numpy().tobytes() for image in fashion.x_train}
    test = {image.numpy().tobytes() for image in fashion.x_test}
    assert len(train) == 6000
    assert len(test) == 2000
    assert not train & test


def test_splits_are_frozen(fashion):
    with pytest.raises(AttributeError, match="cannot assign"):
        fashion.classes = ()


def test_digits_are_those_of_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    arrays = stored("digits")
    assert np.array_equal(arrays["x"], images)
    assert np.array_equal(arrays["y"], labels)


def bilinear(size, target):
    """The weights [target, size] of half-pixel-centred linear interpolation along one axis."""
    weights = np.zeros((target, size))
    for row in range(target):
        centre = max((row + 0.5) * size / target - 0.5, 0.0)
        low = int(centre)
        high = min(low + 1, size - 1)
        weights[row, low] += 1 - (centre - low)
        weights[row, high] += centre - low
    return weights


def test_digits_are_resized_bilinearly():
    images = digits_28()
    small = stored("digits")["x"].reshape(-1, 8, 8) / 16
    along = bilinear(8, 28)
    expected = along @ small @ along.T
    assert images.dtype == torch.float32
    assert images.shape == (1797, 1, 28, 28)
    assert images.min() >= 0
    assert images.max() <= 1
    np.testing.assert_allclose(images[:, 0].numpy(), expected, rtol=0, atol=2e-6)


def test_examples_in_the_docstrings_run():
    result = doctest.testmod(embedded_sets)
    assert (result.failed, result.attempted) == (0, 3)
