"""Well-known tables: UCI regression with its standard splits, and those of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from leanbayes.data.dataset import Data, Task
from leanbayes.data.files import check_finite, find, found, load_arrays, optional
from leanbayes.data.scaling import Array
from leanbayes.data.tables import Rows, numeric_data, one_of, split_rows
from leanbayes.errors import ConfigError, DataError

SKLEARN: Final = ("breast_cancer", "california_housing", "diabetes", "iris", "wine")

# The sets by short name, and the folder of each in the collection with the standard splits.
UCI: Final[Mapping[str, str]] = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "wine-red": "wine-quality-red",
    "yacht": "yacht",
    "year": "YearPredictionMSD",
}


def uci(
    *, root: str, name: str = "boston", split: int = 0, validation: float = 0.0, seed: int = 0
) -> Data:
    """Read a UCI regression set with one of its standard train/test splits.

    The splits of J. Hernandez-Lobato and R. Adams, "Probabilistic Backpropagation", ICML 2015.
    Inputs are standardised by the training rows; targets [N, 1] stay in raw units, and
    `target_scale` holds their mean and standard deviation.

    Args:
        root: A folder with `<name>.npz` (arrays X, y and test_idx [splits, rows]), or with
            `<name>/data/` of data.txt, index_features.txt, index_target.txt, index_train_<k>.txt
            and index_test_<k>.txt.
        name: boston, concrete, energy, kin8nm, naval, power, protein, wine-red, yacht, year, or
            the name of another file or folder in either layout.
        split: Number of the split, from 0.
        validation: Part of the training rows that is held out for choices.
        seed: Decides which rows are held out.

    Raises:
        DataError: The files are missing, malformed or not finite, or the split does not exist.
    """
    names = [*dict.fromkeys((name, UCI.get(name, name), *_short(name)))]
    archives = [f"{n}.npz" for n in names]
    if found(root, *archives):
        x, y, train, test = _packed(find(root, *archives, what=name), split)
    else:
        folders = [f"{n}/data" for n in names]
        x, y, train, test = _listed(find(root, *archives, *folders, what=f"UCI {name}"), split)
    _check(root, name, x, y)
    kept, held, _ = split_rows(len(train), validation, 0.0, seed)
    rows = (train[kept], train[held], test)
    return numeric_data(f"uci-{name}", "regression", x, torch.from_numpy(y).float(), rows)


def sklearn_table(
    *,
    name: str = "diabetes",
    validation: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
) -> Data:
    """Read a table that comes with scikit-learn: diabetes, breast_cancer, wine, iris, ...

    Args:
        name: One of breast_cancer, california_housing (which scikit-learn must have fetched
            before), diabetes, iris, wine.
        validation: Part of all rows that is held out for choices.
        test: Part of all rows that is held out for testing.
        seed: Decides which rows are held out.
    """
    one_of("name", name, SKLEARN)
    found = _sklearn_bunch(name)
    x = np.asarray(found["data"], dtype=np.float64)
    labels = [str(label) for label in found.get("target_names", [])]
    regression = name in ("diabetes", "california_housing")
    task: Task = "regression" if regression else "binary" if len(labels) == 2 else "classification"
    target = torch.from_numpy(np.asarray(found["target"]))
    y = target.float().unsqueeze(1) if regression else target.long()
    rows = split_rows(len(x), validation, test, seed)
    return numeric_data(name, task, x, y, rows, () if regression else tuple(labels))


def _short(name: str) -> list[str]:
    return [short for short, folder in UCI.items() if folder == name]


def _packed(path: Path, split: int) -> tuple[Array, Array, Rows, Rows]:
    arrays = load_arrays(path)
    absent = {"X", "y", "test_idx"} - set(arrays)
    if absent:
        raise DataError(f"{path} holds {sorted(arrays)}; expected also {sorted(absent)}")
    x, y, splits = (arrays[key] for key in ("X", "y", "test_idx"))
    if x.dtype.kind not in "fiu" or y.dtype.kind not in "fiu" or splits.dtype.kind not in "iu":
        raise DataError(f"{path}: X and y must be numbers and test_idx whole numbers")
    if x.ndim != 2 or len(y) != len(x) or splits.ndim != 2:
        raise DataError(
            f"{path}: X {x.shape}, y {y.shape}, test_idx {splits.shape}; expected [N, F], [N] or "
            "[N, T], and [splits, rows]"
        )
    _check_split(path, split, len(splits))
    test = _indices(path, splits[split], len(x))
    train = np.setdiff1d(np.arange(len(x)), test)
    return np.asarray(x, float), np.asarray(y, float).reshape(len(x), -1), train, test


def _listed(folder: Path, split: int) -> tuple[Array, Array, Rows, Rows]:
    table = _numbers(folder / "data.txt")
    features, targets = (
        _indices(folder / f"index_{part}.txt", _numbers(folder / f"index_{part}.txt"), len(table.T))
        for part in ("features", "target")
    )
    _check_split(folder, split, len(list(folder.glob("index_test_*.txt"))))
    train, test = (
        _indices(path, _numbers(path), len(table))
        for path in (folder / f"index_{part}_{split}.txt" for part in ("train", "test"))
    )
    both = np.intersect1d(train, test)
    if len(both):
        raise DataError(f"{folder}: row {both[0]} is in both parts of split {split}")
    return table[:, features], table[:, targets], train, test


def _numbers(path: Path) -> Array:
    if not path.is_file():
        raise DataError(f"{path} is missing; expected a text file of numbers")
    try:
        rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
        table = np.array([row for row in rows if row], dtype=np.float64)
    except ValueError as error:  # a word, bytes that are no text, or rows of unequal length
        raise DataError(f"{path} is not a table of numbers: {error}") from error
    if not table.size:
        raise DataError(f"{path} is empty; expected rows of numbers")
    return table


def _indices(path: Path, values: Any, count: int) -> Rows:
    flat = np.asarray(values, dtype=np.float64).ravel()
    whole = flat.astype(np.int64) if np.isfinite(flat).all() else np.array([-1])
    if (whole != flat).any() or whole.min() < 0 or whole.max() >= count:
        raise DataError(f"{path}: expected whole numbers from 0 to {count - 1}")
    if len(np.unique(whole)) < len(whole):
        raise DataError(f"{path} names a number twice; expected each once")
    return np.sort(whole)


def _check_split(path: Path, split: int, count: int) -> None:
    if not 0 <= split < count:
        raise ConfigError(f"{path} has {count} splits; write split=0 to {count - 1}, not {split}")


def _check(root: str, name: str, x: Array, y: Array) -> None:
    check_finite(torch.from_numpy(x), f"{root} ({name}, features)")
    check_finite(torch.from_numpy(y), f"{root} ({name}, targets)")


def _sklearn_bunch(name: str) -> Any:
    datasets = optional("sklearn.datasets", "scikit-learn")
    if name != "california_housing":
        return getattr(datasets, f"load_{name}")()
    try:
        return datasets.fetch_california_housing(download_if_missing=False)
    except OSError as error:
        raise DataError(
            "california_housing is not in scikit-learn's cache; fetch it once by "
            "sklearn.datasets.fetch_california_housing()"
        ) from error
