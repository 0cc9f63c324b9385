import os
import pickle
import struct

import numpy as np
import pytest
import torch

from leanbayes.data.cifar import CIFAR100_CLASSES, cifar10, cifar100
from leanbayes.data.plain_pickle import load_plain
from leanbayes.errors import DataError


def batch(count, classes=10, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 3072), np.uint8), rng.integers(0, classes, count).tolist()


def text(value):
    return b"U" + bytes([len(value)]) + value


def python2(data, labels):
    """The bytes of the official batches: Python 2, protocol 2, numpy.core, text as bytes."""
    shape = b"J" + struct.pack("<i", len(data)) + b"M" + struct.pack("<H", data.shape[1]) + b"\x86"
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    raw = b"T" + struct.pack("<i", data.size) + data.tobytes()
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b")
    array += b"\x87R(K\x01" + shape + dtype + b"\x89" + raw + b"tb"
    marks = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + marks + b"u."


def write10(folder, dump, *, per_batch=4):
    folder.mkdir(parents=True)
    names = [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]
    made = [batch(per_batch, seed=seed) for seed in range(6)]
    for name, (x, y) in zip(names, made, strict=True):
        dump(folder / name, x, y)
    return made


def dump_python2(path, x, y):
    path.write_bytes(python2(x, y))


def dump_binary(path, x, y):
    rows = np.concatenate([np.uint8(y)[:, None], x], axis=1)
    path.with_suffix(".bin").write_bytes(rows.tobytes())


def pixels(part, scale):
    return (scale.undo(part[0]) * 255).round().byte().flatten(1).numpy()


@pytest.mark.parametrize(
    ("folder", "dump"),
    [
        ("cifar-10-batches-py", dump_python2),
        ("cifar-10-batches-bin", dump_binary),
        (".", dump_binary),
    ],
)
def test_cifar10_reads_all_batches_in_order(tmp_path, folder, dump):
    root = tmp_path / "root"
    made = write10(root / folder, dump)
    data = cifar10(root=str(root), validation=6)
    x = np.concatenate([x for x, _ in made[:5]])
    y = [label for _, marks in made[:5] for label in marks]
    assert np.array_equal(pixels(data.train, data.normalize), x[:14])
    assert np.array_equal(pixels(data.validation, data.normalize), x[14:])
    assert data.train[1].tolist() + data.validation[1].tolist() == y
    assert np.array_equal(pixels(data.test, data.normalize), made[5][0])
    assert data.test[0].shape[1:] == (3, 32, 32)
    assert data.classes[3] == "cat"


def test_channels_come_first_then_rows(tmp_path):
    x = np.zeros((1, 3072), np.uint8)
    x[0, 1024 + 2 * 32 + 5] = 255  # green, row 2, column 5
    write10(tmp_path / "a", lambda path, *_: dump_python2(path, x, [0]))
    data = cifar10(root=str(tmp_path / "a"), validation=0, normalize="none")
    assert data.test[0].nonzero().tolist() == [[0, 1, 2, 5]]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("key", [str, str.encode])
def test_pickles_of_python_3_are_read_too(tmp_path, protocol, key):
    x, y = batch(3)
    content = {key("data"): x, key("labels"): y, key("filenames"): ["a", "b", "c"]}
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(content, protocol))
    found = {k.decode() if isinstance(k, bytes) else k: v for k, v in load_plain(path).items()}
    assert np.array_equal(found["data"], x)
    assert found["labels"] == y


def test_fortran_order_and_byte_order_are_kept(tmp_path):
    array = np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3))
    for protocol in (2, 5):
        (tmp_path / "p").write_bytes(pickle.dumps([array, {"a": array}], protocol))
        found = load_plain(tmp_path / "p")
        assert found[0].tolist() == found[1]["a"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("binary", [False, True])
def test_cifar100_uses_the_fine_labels(tmp_path, binary):
    for seed, name in enumerate(("train", "test")):
        x, y = batch(5, 100, seed)
        coarse = [label % 20 for label in y]
        if binary:
            (tmp_path / "cifar-100-binary").mkdir(exist_ok=True)
            rows = np.concatenate([np.uint8([coarse, y]).T, x], axis=1)
            (tmp_path / "cifar-100-binary" / f"{name}.bin").write_bytes(rows.tobytes())
        else:
            (tmp_path / "cifar-100-python").mkdir(exist_ok=True)
            content = {"data": x, "fine_labels": y, "coarse_labels": coarse}
            (tmp_path / "cifar-100-python" / name).write_bytes(pickle.dumps(content, 2))
    data = cifar100(root=str(tmp_path), validation=0, normalize="imagenet")
    assert data.test[1].tolist() == batch(5, 100, 1)[1]
    assert np.array_equal(pixels(data.test, data.normalize), batch(5, 100, 1)[0])
    assert data.normalize.mean == (0.485, 0.456, 0.406)


def test_the_hundred_names_are_distinct_and_sorted():
    assert len(set(CIFAR100_CLASSES)) == 100
    assert list(CIFAR100_CLASSES) == sorted(CIFAR100_CLASSES)


class Evil:
    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_calls_something_is_refused_and_nothing_runs(tmp_path, protocol):
    target = tmp_path / "made_by_the_pickle"
    (tmp_path / "batch").write_bytes(pickle.dumps({"data": Evil(str(target))}, protocol))
    with pytest.raises(DataError, match=r"it names (posix|nt|os)\.mkdir"):
        load_plain(tmp_path / "batch")
    assert not target.exists()


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(np.array([{}, []], object), 2),
        pickle.dumps(torch.zeros(2)),
        pickle.dumps({"data": np.zeros(9, np.uint8)}, 2)[:-20],
        b"",
        b"not a pickle",
        # An array of 2**40 bytes whose state holds three.
        b"\x80\x02cnumpy\nndarray\n)R(K\x01\x8a\x06\x00\x00\x00\x00\x00\x01\x85cnumpy\ndtype\n"
        b"U\x02u1K\x00K\x01\x87R\x89U\x03abctb.",
    ],
)
def test_objects_and_damaged_pickles_are_refused(tmp_path, content):
    (tmp_path / "batch").write_bytes(content)
    with pytest.raises(DataError, match="no pickle of plain arrays"):
        load_plain(tmp_path / "batch")


def test_a_pickle_cannot_change_the_reader(tmp_path):
    """BUILD with slot state sets attributes on whatever was named: classes and functions too."""
    for named in (b"_codecs\nencode\n", b"numpy\ndtype\n", b"numpy\nndarray\n"):
        state = b"N}U\x08__init__K\x01s\x86"
        (tmp_path / "p").write_bytes(b"\x80\x02c" + named + state + b"b.")
        with pytest.raises(DataError, match="no pickle"):
            load_plain(tmp_path / "p")
        (tmp_path / "good").write_bytes(pickle.dumps(np.arange(3), 2))
        assert load_plain(tmp_path / "good").tolist() == [0, 1, 2]


def test_wrong_contents_say_what_was_found(tmp_path):
    made = tmp_path / "a"
    write10(made, dump_python2)
    x, y = batch(4)
    for content, message in (
        ({"data": x}, r"holds \['data'\]; expected a dict with data and labels"),
        ({"data": x[:, :5], "labels": y}, r"uint8 \(4, 5\); expected uint8 \[N, 3072\]"),
        ({"data": x.tolist(), "labels": y}, "is list"),
        ({"data": x, "labels": y[:2]}, "4 images and 2 labels"),
        ({"data": x, "labels": [0, 1, 2, 10]}, "label 10 of example 3"),
        ({"data": x, "labels": ["cat"] * 4}, "expected whole"),
        ({"data": x, "labels": 3}, "labels"),
    ):
        (made / "data_batch_2").write_bytes(pickle.dumps(content, 2))
        with pytest.raises(DataError, match=message) as found:
            cifar10(root=str(made), validation=0)
        assert "data_batch_2" in str(found.value)


def test_a_missing_or_cut_batch_is_named(tmp_path):
    made = tmp_path / "cifar-10-batches-bin"
    write10(made, dump_binary)
    (made / "data_batch_3.bin").write_bytes(bytes(3073 + 5))
    with pytest.raises(DataError, match=r"data_batch_3\.bin holds 3,078 bytes.*records of 3,073"):
        cifar10(root=str(tmp_path), validation=0)
    (made / "data_batch_3.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_3\.bin is missing"):
        cifar10(root=str(tmp_path), validation=0)
