"""Tables from CSV or parquet files, as standardised numbers."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isinf, nan
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leanbayes.data.dataset import Data, Normalize, Task
from leanbayes.data.files import optional
from leanbayes.data.scaling import Array, scale_of, standardised, table_scale
from leanbayes.errors import ConfigError, DataError

Rows = NDArray[np.int64]
Cells = Mapping[str, Sequence[str]]
Names = str | Sequence[str]

MISSING: Final = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
MOST_CATEGORIES: Final = 1000
DELIMITER: Final = "other files: write delimiter=..."
FEW: Final = 20  # categories that a table may have however few its rows
# A decimal comma, thousands with separators, per cent or a currency.
OTHER_NUMBERS: Final = re.compile(r"[-+]?[$€£]?[-+]?(\d+|\d{1,3}([., ']\d{3})+)([.,]\d+)? ?[%$€£]?")

# An index without a name, as it is written to CSV, read from there and written again, in parquet.
INDEX: Final = re.compile(r"|Unnamed: \d+|__index_level_\d+__")


@dataclass(frozen=True)
class Column:
    """A column of features: a number, or one 0/1 input for each of its categories."""

    name: str
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class TableData(Data):
    """Data of a table, with what later tables need to be read alike.

    Attributes:
        columns: Features in the order of the inputs; `encoded` turns new cells into numbers.
    """

    columns: tuple[Column, ...] = ()

    def card(self) -> dict[str, Any]:
        """As `Data.card`, with the columns."""
        return super().card() | {"columns": [asdict(column) for column in self.columns]}


def table(  # noqa: PLR0913
    *,
    root: str,
    target: Names,
    task: Literal["regression", "classification", "binary"] = "regression",
    categorical: Names = (),
    drop: Names = (),
    missing: Literal["error", "mean"] = "error",
    validation: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    delimiter: str = ",",
) -> TableData:
    """Read a table from a CSV or parquet file; the first row of a CSV file names the columns.

    Columns of numbers are standardised by the training rows. A column of words gives one input a
    category of the training rows; a category seen later only gives zeros. Numbers are written as
    1234.5.

    Args:
        root: The file, `*.csv` or `*.parquet` (needs pyarrow).
        target: Column or columns to predict.
        task: "regression", "classification" or "binary" (two labels).
        categorical: Columns of numbers that are names, such as codes, and of words however many.
        drop: Columns to leave out.
        missing: "error", or "mean" to fill gaps with the training mean (a category: zeros).
        validation: Part of all rows that is held out for choices.
        test: Part of all rows that is held out for testing.
        seed: Decides which rows are held out.
        delimiter: Between the cells of a CSV file.

    Raises:
        ConfigError: A column is not there, or an option is out of range.
        DataError: The file is missing or malformed, or a cell is missing or not finite.
    """
    one_of("missing", missing, ("error", "mean"))
    one_of("task", task, ("regression", "classification", "binary"))
    cells = read_cells(Path(root), delimiter)
    targets, codes, left_out = (named(cells, v) for v in (target, categorical, drop))
    features = [name for name in cells if name not in {*targets, *left_out}]
    if not targets or not features:
        raise ConfigError(f"{root}: expected a target and a feature among {list(cells)}")
    nameless = [name for name in features if INDEX.fullmatch(name)]
    if nameless:
        raise DataError(
            f"{root}: a column has no name ({nameless[0]!r}), such as an index; name it or write "
            f"drop={nameless}"
        )
    rows = split_rows(len(cells[targets[0]]), validation, test, seed)
    columns = tuple(_column(name, cells[name], rows[0], name in codes) for name in features)
    if missing == "error":
        check_complete(root, cells, features)
    x = encoded(columns, cells)
    y, classes = _targets(root, {name: cells[name] for name in targets}, task)
    scale = table_scale(columns, x[rows[0]])
    return TableData(
        name="table",
        task=task,
        classes=classes,
        normalize=scale,
        target_scale=None if classes else Normalize.of(y[rows[0]]),
        columns=columns,
        **parts(standardised(x, scale), y, rows),
    )


def numeric_data(
    name: str,
    task: Task,
    x: Array,
    y: Tensor,
    rows: tuple[Rows, Rows, Rows],
    classes: tuple[str, ...] = (),
) -> Data:
    """Columns x [N, F] and targets y, standardised by the training rows."""
    scale = scale_of(x[rows[0]])
    return Data(
        name=name,
        task=task,
        classes=classes,
        normalize=scale,
        target_scale=Normalize.of(y[rows[0]]) if task == "regression" else None,
        **parts(standardised(x, scale), y, rows),
    )


def read_cells(path: Path, delimiter: str = ",", advice: str = DELIMITER) -> dict[str, list[str]]:
    """The cells of a CSV or parquet file by column, as text.

    Args:
        path: The file.
        delimiter: Between the cells of a CSV file.
        advice: For a file that looks split at something else.
    """
    path = path.expanduser()
    if not path.is_file():
        raise DataError(f"{path} is not a file; write root=FILE.csv or root=FILE.parquet")
    if path.suffix.lower() == ".parquet":
        return _parquet_cells(path)
    lines = _lines(path, delimiter)
    names = _names(path, lines[0], delimiter, advice)
    for number, line in enumerate(lines[1:], 1):
        if len(line) != len(names):
            raise DataError(
                f"{path}: row {number} has {len(line)} cells; expected {len(names)}, split at "
                f"{delimiter!r} ({advice})"
            )
    return {name: [line[i].strip() for line in lines[1:]] for i, name in enumerate(names)}


def encoded(columns: Sequence[Column], cells: Cells) -> Array:
    """Numbers [N, inputs] of the columns' cells, NaN where a number is missing.

    Example:
        >>> columns = Column("size"), Column("colour", ("blue", "red"))
        >>> encoded(columns, {"size": ["1.5", "?"], "colour": ["red", "grey"]})
        array([[1.5, 0. , 1. ],
               [nan, 0. , 0. ]])
    """
    return np.concatenate([_block(column, cells[column.name]) for column in columns], axis=1)


def split_rows(count: int, validation: float, test: float, seed: int) -> tuple[Rows, Rows, Rows]:
    """Indices of training, validation and test rows: parts of 1, drawn by the seed."""
    if min(validation, test) < 0 or validation + test >= 1:
        raise ConfigError(
            f"validation={validation} and test={test} are parts of all rows: expected at least 0 "
            "each and less than 1 together"
        )
    ends = np.cumsum([round(test * count), round(validation * count)])
    held, chosen, train = np.split(np.random.default_rng(seed).permutation(count), ends)
    if not len(train):
        raise DataError(f"{count} rows leave none to train on; write smaller validation and test")
    return np.sort(train), np.sort(chosen), np.sort(held)


def parts(x: Tensor, y: Tensor, rows: tuple[Rows, Rows, Rows]) -> dict[str, Any]:
    """The pairs (inputs, targets) of the three parts; None where a part has no row."""
    names = ("train", "validation", "test")
    return {n: (x[r], y[r]) if len(r) else None for n, r in zip(names, rows, strict=True)}


def _lines(path: Path, delimiter: str) -> list[list[str]]:
    """Cells of all lines of a CSV file but the empty ones."""
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ConfigError(
            f"delimiter is one character, such as ';'; found {delimiter!r} (of a tab write "
            '"\\t", with these quotes on the command line too)'
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            # Quotes may stand behind a blank: "size", "kind".
            rows = csv.reader(stream, delimiter=delimiter, skipinitialspace=True, strict=True)
            lines = [line for line in rows if line]
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8: {error}") from error
    if len(lines) < 2:
        raise DataError(f"{path} has {len(lines)} lines; expected column names and rows")
    return lines


def _names(path: Path, line: Sequence[str], delimiter: str, advice: str) -> list[str]:
    """Distinct names of columns, from the first line."""
    names = [name.strip() for name in line]
    if len(names) == 1 and any(mark in names[0] for mark in ",;\t|" if mark != delimiter):
        raise DataError(
            f"{path} has one column, {names[0]!r}, split at {delimiter!r}; expected several "
            f"({advice})"
        )
    if len(set(names)) < len(names):
        raise DataError(f"{path} names a column twice: {names}; expected distinct names")
    return names


def _parquet_cells(path: Path) -> dict[str, list[str]]:
    parquet = optional("pyarrow.parquet", "pyarrow")
    try:
        columns = parquet.read_table(path).to_pydict()
    except (OSError, ValueError) as error:  # pyarrow's own errors derive from these
        raise DataError(f"{path} is not a parquet file: {error}") from error
    if not columns or not len(next(iter(columns.values()))):
        raise DataError(f"{path} has no rows; expected columns with at least one")
    return {str(k): ["" if v is None else str(v) for v in cells] for k, cells in columns.items()}


def one_of(option: str, value: str, known: Sequence[str]) -> None:
    """Refuse a value that an option does not have."""
    if value not in known:
        raise ConfigError(f"{option} is one of {', '.join(known)}; found {value!r}")


def named(cells: Cells, names: Names) -> tuple[str, ...]:
    """Names of columns, all of which are there."""
    names = (names,) if isinstance(names, str) else tuple(names)
    absent = [name for name in names if name not in cells]
    if absent:
        several = '; several are a list, ["a", "b"]' if "," in absent[0] else ""
        raise ConfigError(
            f"no column {absent[0]!r} in the table; its columns are {list(cells)}{several}"
        )
    return names


def _number(cell: str) -> float | None:
    """The number, NaN for a missing one, None for a word."""
    if cell.lower() in MISSING:
        return nan
    try:
        # Python reads 1_2 as 12, which in a table is a code.
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _column(name: str, cells: Sequence[str], train: Rows, codes: bool) -> Column:
    numbers = [_number(cell) for cell in cells]
    words = [i for i, number in enumerate(numbers) if number is None]
    if not words and not codes:
        return _number_column(name, numbers, train)
    known = len(cells) - sum(cell.lower() in MISSING for cell in cells)
    if len(words) < known and not codes:
        raise DataError(
            f"column {name!r} holds numbers, but row {words[0] + 1} says {cells[words[0]]!r}; "
            f"correct the cell, or write categorical=[{name!r}]"
        )
    categories = sorted({cells[i] for i in train if cells[i].lower() not in MISSING})
    if not 1 <= len(categories) <= MOST_CATEGORIES:
        raise DataError(
            f"column {name!r} has {len(categories)} categories in the training rows; expected 1 to "
            f"{MOST_CATEGORIES}; write drop=[{name!r}] to leave it out"
        )
    if not codes:
        _check_words(name, cells, categories, len(train))
    return Column(name, tuple(categories))


def _check_words(name: str, cells: Sequence[str], categories: list[str], rows: int) -> None:
    """Refuse numbers in another form and free text, which would be a category a row."""
    known = [cell for cell in cells if cell.lower() not in MISSING]
    if known and all(OTHER_NUMBERS.fullmatch(cell) for cell in known):
        raise DataError(
            f"column {name!r} holds {known[0]!r}, which is no number here; write it as 1234.5, or "
            f"categorical=[{name!r}]"
        )
    if len(categories) > max(FEW, rows // 2):
        raise DataError(
            f"column {name!r} has {len(categories)} different words in {rows} training rows, such "
            f"as {categories[0][:40]!r}: too few rows each to learn from; write drop=[{name!r}], "
            f"or categorical=[{name!r}] to take it all the same"
        )


def _number_column(name: str, numbers: Sequence[float | None], train: Rows) -> Column:
    for row, number in enumerate(numbers, 1):
        if number is not None and isinf(number):
            raise DataError(f"column {name!r}: row {row} is infinite; expected finite numbers")
    if all(numbers[i] != numbers[i] for i in train):
        raise DataError(f"column {name!r} is empty in the training rows; write drop=[{name!r}]")
    return Column(name)


def _block(column: Column, cells: Sequence[str]) -> Array:
    if column.categories:
        return np.array([[float(cell == c) for c in column.categories] for cell in cells])
    numbers = [_number(cell) for cell in cells]
    if None in numbers:
        row = numbers.index(None)
        raise DataError(f"column {column.name!r}: row {row + 1} is no number: {cells[row]!r}")
    return np.array(numbers, dtype=np.float64)[:, None]


def check_complete(root: str, cells: Cells, names: Sequence[str], advice: str = "") -> None:
    """Refuse missing cells, naming the first."""
    advice = advice or '; write missing="mean" to fill such gaps, or drop=[...]'
    for name in names:
        for row, cell in enumerate(cells[name], 1):
            if cell.lower() in MISSING:
                found = f" ({cell})" if cell else ""
                raise DataError(f"{root}: row {row} of column {name!r} is missing{found}{advice}")


def _targets(root: str, cells: Cells, task: Task) -> tuple[Tensor, tuple[str, ...]]:
    """Numbers [N, T] and no names, or labels [N] and their names in order."""
    check_complete(root, cells, list(cells), "; expected a target in every row")
    if task == "regression":
        return number_targets(root, cells), ()
    if len(cells) > 1:
        raise ConfigError(f"{task} has one target; found {list(cells)}")
    (column,) = cells.values()
    words = any(_number(cell) is None for cell in column)
    classes = sorted(set(column), key=(lambda c: (0.0, c)) if words else (lambda c: (float(c), c)))
    if len(classes) < 2 or (task == "binary" and len(classes) > 2):
        expected = "2" if task == "binary" else "at least 2"
        raise DataError(f"{root}: {task} expects {expected} labels, found {classes[:10]}")
    order = {label: i for i, label in enumerate(classes)}
    return torch.tensor([order[cell] for cell in column]), tuple(classes)


def number_targets(root: str, cells: Cells) -> Tensor:
    """Float32 [N, T] of the columns' cells."""
    for name, column in cells.items():
        for row, cell in enumerate(column, 1):
            number = _number(cell)
            if number is None or isinf(number):
                raise DataError(
                    f"{root}: row {row} of target {name!r} is {cell!r}; expected a finite number, "
                    'or write task="classification"'
                )
    values = [[float(cell) for cell in column] for column in cells.values()]
    return torch.tensor(values, dtype=torch.float64).T.float()
