import io
import lzma

import numpy as np
import pytest
import torch

from leanbayes.data.arrays import npz
from leanbayes.data.dataset import Normalize
from leanbayes.data.images import held_out, statistics
from leanbayes.errors import ConfigError, DataError

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (10, 5, 6, 3), np.uint8)
LABELS = np.array([0, 2, 1, 0, 1, 2, 0, 1, 2, 0])


def save(path, **arrays):
    np.savez(path / "set.npz", **arrays)
    return str(path / "set.npz")


@pytest.mark.parametrize(
    "x", [BYTES, BYTES.transpose(0, 3, 1, 2), BYTES[..., :1], BYTES[..., 0]], ids=str
)
def test_every_layout_of_bytes_gives_the_same_pixels(tmp_path, x):
    root = save(tmp_path, x_train=x, y_train=LABELS, x_test=x[:3], y_test=LABELS[:3])
    data = npz(root=root, normalize="none")
    expected = BYTES.transpose(0, 3, 1, 2)[:, : data.train[0].shape[1]]
    assert np.array_equal((data.train[0] * 255).round().byte().numpy(), expected)
    assert torch.equal(data.test[0], data.train[0][:3])
    assert data.train[1].tolist() == LABELS.tolist()
    assert (data.classes, data.task) == (("0", "1", "2"), "classification")


def test_constants_come_from_the_training_rows_alone(tmp_path):
    data = npz(root=save(tmp_path, x=BYTES, y=LABELS), validation=2, test=3)
    kept = BYTES[:5] / 255
    assert data.normalize.mean == pytest.approx(kept.mean((0, 1, 2)))
    assert data.normalize.std == pytest.approx(kept.std((0, 1, 2)))
    assert data.validation[1].tolist() == LABELS[5:7].tolist()
    assert data.test[1].tolist() == LABELS[7:].tolist()
    expected = (BYTES[7:] / 255 - kept.mean((0, 1, 2))) / kept.std((0, 1, 2))
    np.testing.assert_allclose(data.test[0].permute(0, 2, 3, 1), expected, atol=1e-5)


def test_the_histogram_gives_the_statistics_of_bytes():
    x = torch.from_numpy(BYTES.transpose(0, 3, 1, 2).copy())
    x[:, 2] = 7
    found, expected = statistics(x), Normalize.of(x)
    assert found.mean == pytest.approx(expected.mean)
    assert found.std[:2] == pytest.approx(expected.std[:2])
    constant = Normalize((found.mean[2],), (found.std[2],))
    assert float(constant(x[:, 2:]).abs().max()) < 1e-5


def test_a_table_with_real_targets_is_regression_in_raw_units(tmp_path):
    x, y = RNG.normal(3, 2, (20, 4)), RNG.normal(50, 10, 20)
    data = npz(root=save(tmp_path, x=x, y=y), test=5)
    assert data.task == "regression"
    np.testing.assert_allclose(data.train[0].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(data.test[1][:, 0], y[15:], rtol=1e-6)
    assert data.target_scale.mean == pytest.approx([y[:15].mean()], rel=1e-6)
    assert data.target_scale.std == pytest.approx([y[:15].std()], rel=1e-5)
    assert data.classes == ()


def test_ids_are_left_as_they_are(tmp_path):
    x = RNG.integers(0, 1000, (10, 7), np.int32)
    data = npz(root=save(tmp_path, x=x, y=LABELS))
    assert data.train[0].dtype == torch.int64
    assert data.train[0].tolist() == x.tolist()
    assert data.normalize is None


def test_parts_and_names_of_the_file_are_used(tmp_path):
    names = np.array(["cat", "dog", "bird"])
    arrays = {f"x_{part}": BYTES[i : i + 3] for i, part in enumerate(("train", "val", "test"))}
    arrays |= {f"y_{part}": LABELS[i : i + 3] for i, part in enumerate(("train", "val", "test"))}
    root = save(tmp_path, **arrays, classes=names)
    data = npz(root=root)
    assert data.classes == ("cat", "dog", "bird")
    assert data.validation[1].tolist() == LABELS[1:4].tolist()
    assert npz(root=root, classes=("a", "b", "c")).classes == ("a", "b", "c")
    with pytest.raises(ConfigError, match="write validation=0"):
        npz(root=root, validation=1)
    with pytest.raises(ConfigError, match="write test=0"):
        npz(root=root, test=1)


def test_a_folder_with_one_file_and_one_packed_by_xz_are_read(tmp_path):
    stream = io.BytesIO()
    np.savez(stream, x=BYTES, y=LABELS)
    (tmp_path / "set.npz.xz").write_bytes(lzma.compress(stream.getvalue()))
    assert npz(root=str(tmp_path)).train[1].tolist() == LABELS.tolist()
    np.savez(tmp_path / "second.npz", x=BYTES, y=LABELS)
    with pytest.raises(DataError, match="has 2 npz files"):
        npz(root=str(tmp_path))
    with pytest.raises(DataError, match="no file or folder at"):
        npz(root=str(tmp_path / "nothing.npz"))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": BYTES}, "holds z; expected x_train"),
        ({"x": BYTES[:0]}, "no examples"),
        ({"x": BYTES, "y": LABELS[:4]}, "10 inputs and 4 targets"),
        ({"x": BYTES[:0], "y": LABELS[:0]}, r"shape \(0,\); expected \[N\]"),
        ({"x": BYTES[0], "y": LABELS[:5] - 1}, "label -1 of example 1|label -1 of example 0"),
        ({"x": BYTES, "y": LABELS, "classes": np.array(["a", "b"])}, "label 2 of example 1"),
        ({"x": BYTES, "y": np.stack([LABELS] * 2, 1)}, r"\(10, 2\)"),
        ({"x": BYTES.astype(np.uint16)[..., 0, 0], "y": LABELS, "n": 1}, None),
        ({"x": BYTES.astype(np.int64), "y": LABELS}, r"int64 .*images in bytes \(uint8\)"),
        ({"x": BYTES.astype(np.uint16)[..., 0], "y": LABELS}, r"expected ids \[N, L\]"),
        ({"x": BYTES, "y": LABELS + 1000}, "as large as 1002, for 10 examples.*floating point"),
        ({"x": BYTES[..., 0].astype("U3"), "y": LABELS}, "<U3"),
        ({"x": BYTES.astype(np.complex64), "y": LABELS}, "complex64"),
        ({"x": np.array([{}] * 10), "y": LABELS}, "no npz of plain arrays"),
    ],
)
def test_wrong_arrays_say_what_was_found(tmp_path, arrays, message):
    root = save(tmp_path, **arrays)
    if message is None:  # whole numbers that are no bytes are ids
        assert npz(root=root).normalize is None
        return
    with pytest.raises(DataError, match=message):
        npz(root=root)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_named(tmp_path, value):
    x = np.zeros((10, 4))
    x[6, 1] = x[8, 0] = value
    with pytest.raises(
        DataError, match=r"2 of 10 examples in x of the train part.*first is number 6"
    ):
        npz(root=save(tmp_path, x=x, y=LABELS))
    with pytest.raises(DataError, match=r"targets in .*first is number 1"):
        npz(root=save(tmp_path, x=np.zeros((2, 3)), y=np.array([0.0, value])))


def test_parts_must_have_the_same_inputs(tmp_path):
    root = save(tmp_path, x_train=BYTES, y_train=LABELS, x_test=BYTES[:, :, :5], y_test=LABELS)
    with pytest.raises(
        DataError, match=r"test part .*\(3, 5, 5\), the training part .*\(3, 5, 6\)"
    ):
        npz(root=root)


def test_an_unclear_layout_must_be_said(tmp_path):
    x = RNG.integers(0, 256, (10, 3, 3, 3), np.uint8)
    root = save(tmp_path, x=x, y=LABELS)
    with pytest.raises(DataError, match="write layout='NHWC'"):
        npz(root=root)
    found = npz(root=root, layout="NHWC", normalize="none").train[0]
    assert np.array_equal((found * 255).round().numpy(), x.transpose(0, 3, 1, 2))
    with pytest.raises(ConfigError, match="auto, NHWC, NCHW; found 'HWC'"):
        npz(root=root, layout="HWC")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 damaged", b"text"])
def test_a_file_that_is_no_npz_is_refused(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz is no npz of plain arrays"):
        npz(root=str(tmp_path / "a.npz"))


def test_a_single_array_is_no_npz(tmp_path):
    with (tmp_path / "a.npz").open("wb") as stream:
        np.save(stream, BYTES)
    with pytest.raises(DataError, match="no npz of plain arrays"):
        npz(root=str(tmp_path))


def test_sorted_labels_are_held_out_by_class():
    labels = torch.arange(10).repeat_interleave(30)
    kept, out = held_out(labels, 20)
    assert labels[out].bincount().tolist() == [2] * 10
    assert sorted(kept.tolist() + out.tolist()) == list(range(300))
    assert held_out(labels.flip(0), 20)[1].tolist() == list(range(280, 300))


def test_inputs_alone_are_foreign_data(tmp_path):
    data = npz(root=save(tmp_path, x=BYTES), normalize="none")
    assert (data.train, data.classes) == (None, ())
    assert np.array_equal((data.test * 255).round().byte().numpy(), BYTES.transpose(0, 3, 1, 2))
