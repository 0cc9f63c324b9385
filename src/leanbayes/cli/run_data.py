"""Rows of data by name as a finished run sees them, for commands that look at a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanbayes.cli.completion import data_names

if TYPE_CHECKING:
    from torch import Tensor

    from leanbayes.cli.card import Card
    from leanbayes.data.dataset import Data, Normalize

BATCH = 256  # rows of a pass
DECIDED = ("task", "categorical", "drop")  # of a table: its columns and targets are the run's
OutFlag = Annotated[Path, typer.Option(help="The file to write, JSON.")]
DataFlag = Annotated[
    str | None,
    typer.Option(help="Data by name; those of the run if left out.", autocompletion=data_names),
]
RootFlag = Annotated[str | None, typer.Option(help="Folder of the files of the data.")]
PartFlag = Annotated[str, typer.Option(help="train, validation, test, or a further part.")]
SetFlag = Annotated[
    list[str] | None, typer.Option("--set", help="Option of the data, images=100. May be repeated.")
]
RowsFlag = Annotated[int, typer.Option(min=1, help="How many rows of the part, from the first on.")]


def options_of(card: Card, name: str, root: str | None, changes: list[str]) -> dict[str, Any]:
    """Those that the run read its data with, unless the data are others; then the changes."""
    from leanbayes.cli.settings_file import merged

    kept = card.data.get("options", {}) if card.data.get("reader") == name else {}
    found = merged({"options": dict(kept)}, [f"options.{change}" for change in changes])
    options: dict[str, Any] = found["options"]
    if _own_table(card, name):
        _refuse_decided({"task": card.data["task"], **kept}, options)
    return options | ({} if root is None else {"root": root})


def _own_table(card: Card, name: str) -> bool:
    """Whether the data are a table that is read as that of the run was."""
    return bool(card.data.get("reader") == name == "table" and card.data.get("columns"))


def _refuse_decided(run: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raise on what the network's inputs and targets do not follow any more."""
    from leanbayes.errors import ConfigError

    for key in DECIDED:
        ours, other = _words(run.get(key)), _words(asked.get(key, run.get(key)))
        if other != ours:
            raise ConfigError(
                f"--set {key}={asked[key]!r}: the run was trained with {', '.join(ours) or 'none'} "
                "there, and its network takes that alone. Leave it out, or train a run with it"
            )


def _words(names: Any) -> list[str]:
    """One name or several as a list."""
    return [names] if isinstance(names, str) else [str(name) for name in names or ()]


def typed(given: Mapping[str, Any]) -> list[str]:
    """Flags as they are typed, for a record; those without a value are left out."""
    known = {name: value for name, value in given.items() if value is not None}
    return [word for name, value in known.items() for word in (f"--{name}", str(value))]


def placed(change: str) -> str:
    """A change for a record: of a place on this machine the last part."""
    from leanbayes.cli.card import PLACES
    from leanbayes.records import shown

    key, equals, value = change.partition("=")
    is_place = key.rpartition(".")[2].strip() in PLACES
    return f"{key}{equals}{shown(value)}" if is_place else change


def read_for(card: Card, name: str, options: dict[str, Any]) -> Data:
    """Data by name; a table as the run's own was: its columns, categories, labels and scale."""
    from leanbayes.cli.readers import read_data
    from leanbayes.data.table_again import table_again

    again = partial(table_again, card.data, told=_note) if _own_table(card, name) else None
    return read_data(name, options, "--set", again)


def _note(words: str) -> None:
    typer.echo(f"leanbayes: {words}", err=True)


@dataclass(frozen=True)
class Asked:
    """Which data: by name, the part of them, options, and how many rows."""

    data: str | None
    root: str | None
    part: str
    change: list[str] | None
    rows: int

    def read(self, card: Card) -> Rows:
        """These rows, as the run's network takes them."""
        from leanbayes.cli.readers import part_of

        name = str(card.data.get("reader")) if self.data is None else self.data
        found = read_for(card, name, options_of(card, name, self.root, self.change or []))
        return Rows(card, name, part_of(found, self.part), found.normalize, self.rows)

    def words(self) -> list[str]:
        """As they were typed, for a record."""
        from leanbayes.records import shown

        words = typed({"data": self.data, "root": None if self.root is None else shown(self.root)})
        changes = [word for change in self.change or () for word in ("--set", placed(change))]
        return [*words, "--part", self.part, *changes, "--rows", str(self.rows)]


@dataclass(frozen=True)
class Rows:
    """Batches of (inputs, targets) of the first rows of a part; can be gone through again."""

    card: Card
    name: str
    part: Any
    scale: Normalize | None
    rows: int

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        from leanbayes.cli.figures import batches, rows_of_pass

        left = self.rows
        for x, y in batches(self.part, rows_of_pass(self.card, BATCH)):
            yield self.card.rescaled(x[:left], self.scale), y[:left]
            left -= len(x[:left])
            if not left:
                return
