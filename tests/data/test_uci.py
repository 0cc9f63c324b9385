import numpy as np
import pytest
import torch

from leanbayes.data.uci import sklearn_table, uci
from leanbayes.errors import ConfigError, DataError


@pytest.fixture
def numbers():
    generator = np.random.default_rng(0)
    x, y = generator.normal(3.0, 2.0, (20, 3)), generator.normal(-5.0, 4.0, 20)
    test = np.stack([generator.permutation(20)[:4] for _ in range(3)]).astype(np.uint16)
    return x, y, test


@pytest.fixture
def packed(tmp_path, numbers):
    x, y, test = numbers
    np.savez(tmp_path / "yacht.npz", X=x, y=y, test_idx=test, ref_mc_dropout_rmse=np.zeros(3))
    return tmp_path


@pytest.fixture
def listed(tmp_path, numbers):
    """The same as text: the target in column 1, indices written as floating numbers."""
    x, y, test = numbers
    folder = tmp_path / "bostonHousing" / "data"
    folder.mkdir(parents=True)
    np.savetxt(folder / "data.txt", np.stack([x[:, 0], y, x[:, 1], x[:, 2]], 1), fmt="%.17g")
    np.savetxt(folder / "index_features.txt", [0, 2, 3])
    np.savetxt(folder / "index_target.txt", [1])
    for split, rows in enumerate(test):
        np.savetxt(folder / f"index_test_{split}.txt", rows)
        np.savetxt(folder / f"index_train_{split}.txt", np.setdiff1d(np.arange(20), rows))
    return tmp_path


def test_a_split_is_standardised_by_its_training_rows_and_targets_stay_raw(packed, numbers):
    x, y, test = numbers
    data = uci(root=str(packed), name="yacht", split=2)
    train = np.setdiff1d(np.arange(20), test[2])
    mean, std = x[train].mean(0), x[train].std(0)
    np.testing.assert_allclose(data.train[0], (x[train] - mean) / std, atol=1e-6)
    np.testing.assert_allclose(data.test[0], (x[np.sort(test[2])] - mean) / std, atol=1e-6)
    np.testing.assert_allclose(data.test[1][:, 0], y[np.sort(test[2])], rtol=1e-6)
    assert data.target_scale.mean[0] == pytest.approx(y[train].mean(), rel=1e-5)
    assert data.target_scale.std[0] == pytest.approx(y[train].std(), rel=1e-5)
    assert data.card()["name"] == "uci-yacht"


@pytest.mark.parametrize("name", ["boston", "bostonHousing"])
def test_both_layouts_give_the_same(packed, listed, name):
    one, two = (
        uci(root=str(packed), name="yacht", split=1),
        uci(root=str(listed), name=name, split=1),
    )
    for part in ("train", "test"):
        for a, b in zip(getattr(one, part), getattr(two, part), strict=True):
            assert torch.equal(a, b)


def test_validation_rows_are_taken_from_the_training_rows(packed):
    whole = uci(root=str(packed), name="yacht")
    data = uci(root=str(packed), name="yacht", validation=0.25, seed=1)
    assert whole.validation is None
    assert len(data.validation[1]) == 4
    both = torch.cat([data.train[1], data.validation[1]]).flatten().sort().values
    assert torch.equal(both, whole.train[1].flatten().sort().values)
    assert torch.equal(data.test[1], whole.test[1])
    torch.testing.assert_close(data.train[0].mean(0), torch.zeros(3), atol=1e-6, rtol=0)


@pytest.mark.parametrize("split", [-1, 3])
def test_a_split_that_is_not_there_is_refused(packed, listed, split):
    for root, name in ((packed, "yacht"), (listed, "boston")):
        with pytest.raises(ConfigError, match="has 3 splits; write split=0 to 2"):
            uci(root=str(root), name=name, split=split)


def test_missing_files_say_where_was_looked(tmp_path):
    with pytest.raises(DataError, match=r"boston\.npz or bostonHousing\.npz or boston/data"):
        uci(root=str(tmp_path), name="boston")
    with pytest.raises(DataError, match="does not exist"):
        uci(root=str(tmp_path / "none"), name="boston")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros(20)}, "expected .N, F"),
        ({"y": np.zeros(19)}, "expected .N, F"),
        ({"y": np.array(["a"] * 20)}, "must be numbers"),
        ({"test_idx": np.array([[20]])}, "whole numbers from 0 to 19"),
        ({"test_idx": np.array([[1, 1]])}, "names a number twice"),
        ({"X": np.full((20, 3), np.nan)}, "NaN or infinity"),
        ({"y": np.full(20, np.inf)}, "NaN or infinity"),
    ],
)
def test_a_bad_archive_is_refused(tmp_path, numbers, change, message):
    x, y, test = numbers
    np.savez(tmp_path / "yacht.npz", **({"X": x, "y": y, "test_idx": test} | change))
    with pytest.raises(DataError, match=message):
        uci(root=str(tmp_path), name="yacht")


def test_an_archive_without_splits_says_what_lacks(tmp_path, numbers):
    np.savez(tmp_path / "yacht.npz", X=numbers[0], y=numbers[1])
    with pytest.raises(DataError, match=r"expected also \['test_idx'\]"):
        uci(root=str(tmp_path), name="yacht")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("data.txt", "1 2 3 4\n1 2 3\n", "not a table of numbers"),
        ("data.txt", "1 2 x 4\n", "not a table of numbers"),
        ("data.txt", "", "is empty"),
        ("index_features.txt", "0\n7\n", "whole numbers from 0 to 3"),
        ("index_test_0.txt", "0.5\n", "whole numbers from 0 to 19"),
        ("index_test_0.txt", "\n".join(map(str, range(20))), "in both parts of split 0"),
    ],
)
def test_bad_text_files_are_refused(listed, file, text, message):
    (listed / "bostonHousing" / "data" / file).write_text(text)
    with pytest.raises(DataError, match=message):
        uci(root=str(listed), name="boston")


def test_a_missing_text_file_is_named(listed):
    (listed / "bostonHousing" / "data" / "index_train_0.txt").unlink()
    with pytest.raises(DataError, match=r"index_train_0\.txt is missing"):
        uci(root=str(listed), name="boston")


@pytest.mark.parametrize(
    ("name", "task", "rows"),
    [
        ("diabetes", "regression", 442),
        ("iris", "classification", 150),
        ("wine", "classification", 178),
        ("breast_cancer", "binary", 569),
    ],
)
def test_tables_of_scikit_learn_keep_every_row_and_label(name, task, rows):
    datasets = pytest.importorskip("sklearn.datasets")
    data = sklearn_table(name=name, validation=0.2, test=0.2, seed=5)
    y = torch.cat([part[1] for part in (data.train, data.validation, data.test)])
    expected = getattr(datasets, f"load_{name}")()
    assert (data.task, len(y)) == (task, rows)
    assert np.array_equal(np.sort(y.flatten().numpy()), np.sort(expected.target.astype(np.float32)))
    assert data.classes == tuple(map(str, expected.get("target_names", [])))
    x = np.concatenate(
        [data.normalize.undo(p[0]) for p in (data.train, data.validation, data.test)]
    )
    np.testing.assert_allclose(np.sort(x, 0), np.sort(expected.data, 0), rtol=1e-4, atol=1e-4)


def test_unknown_and_unfetched_tables_say_what_to_do(monkeypatch, tmp_path):
    pytest.importorskip("sklearn")
    with pytest.raises(ConfigError, match="name is one of breast_cancer"):
        sklearn_table(name="titanic")
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    with pytest.raises(DataError, match="fetch_california_housing"):
        sklearn_table(name="california_housing")
