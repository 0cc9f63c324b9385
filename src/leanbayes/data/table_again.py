"""A further table, read as the one that a network was trained on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leanbayes.data.dataset import Normalize
from leanbayes.data.scaling import standardised
from leanbayes.data.tables import (
    MISSING,
    Cells,
    Column,
    Names,
    TableData,
    check_complete,
    encoded,
    named,
    number_targets,
    parts,
    read_cells,
    split_rows,
)
from leanbayes.errors import DataError


def table_again(  # noqa: PLR0913
    card: Mapping[str, Any],
    *,
    root: str,
    target: Names,
    missing: str = "error",
    validation: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    delimiter: str = ",",
    told: Callable[[str], object] = warnings.warn,
    **_chosen: Any,
) -> TableData:
    """The parts of a table by the columns, categories, labels and scale of a card.

    Whatever its own rows hold: columns may be in another order, and a category or a label may be
    absent, without one input or label of the network changing its meaning.

    Args:
        card: `TableData.card()` of the training.
        root: The file.
        target: Column or columns to predict.
        missing: "mean" fills gaps by the mean of the training.
        validation: Part of all rows.
        test: Part of all rows.
        seed: Decides which rows are in which part.
        delimiter: Between the cells of a CSV file.
        told: Called with what was read, and counts for nothing.
        _chosen: Options of `table` that the card has decided.
    """
    cells = read_cells(Path(root), delimiter)
    columns = columns_of(card, root, cells)
    if missing == "error":
        check_complete(root, cells, [column.name for column in columns])
    for words in new_words(root, columns, cells):
        told(words)
    scale, classes = Normalize(**card["normalize"]), tuple(map(str, card["classes"]))
    wanted = {name: cells[name] for name in named(cells, target)}
    check_complete(root, wanted, list(wanted), "; expected a target in every row")
    y = _labels(root, wanted, classes) if classes else number_targets(root, wanted)
    own = card.get("target_scale")
    rows = split_rows(len(y), validation, test, seed)
    return TableData(
        name="table",
        task=card["task"],
        classes=classes,
        normalize=scale,
        target_scale=None if own is None else Normalize(**own),
        columns=columns,
        **parts(standardised(encoded(columns, cells), scale), y, rows),
    )


def columns_of(card: Mapping[str, Any], path: str | Path, cells: Cells) -> tuple[Column, ...]:
    """The features of a card, all of which the cells must have."""
    found = tuple(Column(c["name"], tuple(c["categories"])) for c in card["columns"])
    missing = [column.name for column in found if column.name not in cells]
    if missing:
        raise DataError(f"{path} lacks the columns {missing}; it has {list(cells)}")
    return found


def new_words(path: str | Path, columns: Sequence[Column], cells: Cells) -> Iterator[str]:
    """A sentence a column with cells that are none of its categories: they give zeros alone."""
    for column in (each for each in columns if each.categories):
        strange = {c for c in cells[column.name] if c.lower() not in MISSING}
        if new := sorted(strange - set(column.categories)):
            yield (
                f"{path}: column {column.name!r} holds {len(new)} words that training had not "
                f"({', '.join(map(repr, new[:5]))}): they count as none of its categories"
            )


def _labels(root: str, cells: Mapping[str, Sequence[str]], classes: Sequence[str]) -> Tensor:
    (name, column), *_ = cells.items()
    order = {label: at for at, label in enumerate(classes)}
    for row, cell in enumerate(column, 1):
        if cell not in order:
            raise DataError(
                f"{root}: row {row} of target {name!r} is {cell!r}, which training had not; "
                f"expected one of {', '.join(classes[:10])}"
            )
    return torch.tensor([order[cell] for cell in column])
