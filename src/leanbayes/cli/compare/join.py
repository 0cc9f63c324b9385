"""`leanbayes join`: one record of a comparison that was run in pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leanbayes.cli.compare.record import Record, text_of
from leanbayes.cli.compare.table import table_of
from leanbayes.cli.record_file import COMPARED, check_place, record_in, save

if TYPE_CHECKING:  # it imports torch
    from leanbayes.cli.compare.runs import Outcome

Row = Mapping[str, Any]
COMMON = ("data", "table", "parts")  # has to be the same in all files


def join(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Files of compare; if two have the same run, that of the first is taken."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The record of all, JSON.")],
) -> None:
    """Join the records of one comparison that was run in pieces: machines, methods or seeds apart.

    Rows of a method must have the same settings. Nothing is run, and no data are needed.

    Example: leanbayes join first.json second.json --out all.json
    """
    check_place(out)
    pieces = [(path, record_in(path, *COMPARED)) for path in files]
    _check_heads(pieces)
    joined = Joined(_empty(pieces))
    for path, piece in pieces:
        joined.take(path, piece)
    found = joined.plain()
    save(out, text_of(found))
    typer.echo(table_of(found["rows"], joined.record.parts))


def _check_heads(pieces: Sequence[tuple[Path, Row]]) -> None:
    from leanbayes.errors import ConfigError

    (first, head), *others = pieces
    for path, piece in others:
        for key in COMMON:
            if piece.get(key) != head.get(key):
                words = f"{key} is {head.get(key)!r} in {first} and {piece.get(key)!r} in {path}"
                raise ConfigError(f"records of different comparisons cannot be joined: {words}")


def _empty(pieces: Sequence[tuple[Path, Row]]) -> Record:
    """The record of all with no run in it yet; its head is that of the first file."""
    head = pieces[0][1]
    seeds = sorted({seed for _, piece in pieces for seed in piece["seeds"]})
    kept = {key: head[key] for key in ("command", *COMMON) if key in head}
    starts = (piece["start"]["config"] for _, piece in pieces if "start" in piece)
    parts = head.get("parts", ["test"])
    return Record({**kept, "seeds": seeds}, {}, seeds, parts, start=next(starts, None))


@dataclass
class Joined:
    """Rows of several files by label.

    Attributes:
        record: Has the runs of all, and makes rows out of them.
        rows: As the first file with the label had them.
        grown: Labels with runs of several files: their figures are made anew.
    """

    record: Record
    rows: dict[str, Row] = field(default_factory=dict)
    grown: set[str] = field(default_factory=set)

    def take(self, path: Path, piece: Row) -> None:
        """The rows and starts of one more file."""
        from leanbayes.cli.compare.start import Begun
        from leanbayes.errors import CheckpointError

        try:
            rows = [(row, self.record.outcomes(row)) for row in piece["rows"]]
            starts = [Begun(**start) for start in piece.get("start", {}).get("seeds", [])]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path} is damaged ({type(error).__name__}: {error})") from None
        for row, runs in rows:
            self._take_row(path, row, runs)
        self.record.begin(start for start in starts if start.hash not in self.record.begun)

    def _take_row(self, path: Path, row: Row, runs: Sequence[Outcome]) -> None:
        label, done = row["method"], self.record.done
        new = {(label, run.seed): run for run in runs if (label, run.seed) not in done}
        if label in self.rows:
            _check_same(path, self.rows[label], row)
            self._fill_prices(label, row)
            self.grown |= {label} if new else set()
        self.rows.setdefault(label, row)
        done |= new

    def _fill_prices(self, label: str, row: Row) -> None:
        """Take prices that the files before have not."""
        first = min((run for run in self.record.done if run[0] == label), default=None)
        if "prices" not in row or "prices" in self.rows[label] or first is None:
            return
        self.rows[label] = {**self.rows[label], "prices": row["prices"]}
        self.record.done[first] = replace(self.record.done[first], prices=row["prices"])

    def plain(self) -> dict[str, Any]:
        """The file; rows that one file alone had stay as they were, but are tested anew."""
        record, known = self.record, self._table()
        record.table = [*known, *self.rows]
        record.commands = {label: self.rows[label]["command"] for label in self.grown}
        record.baseline = self._baseline()
        record.others = {k: self._again(k) for k in self.rows if k not in self.grown}
        left = self._missing(known or {label: {} for label in self.rows})
        found = {key: value for key, value in record.plain().items() if key != "unfinished"}
        return {**record.head, **({"unfinished": left} if left else {}), **found}

    def _again(self, label: str) -> dict[str, Any]:
        """A row of one file; a test over rows of a run stays, since no file has these."""
        row, record = dict(self.rows[label]), self.record
        if _is_by_rows(row.get("significance", {})):
            return row
        done = [record.done[key] for key in sorted(record.done) if key[0] == label]
        return row | (record.tested(label, done) if done else {})

    def _baseline(self) -> str | None:
        """Of a table the same row in whichever order files come; else the first point estimate."""
        from leanbayes.recipes.tables import point_of

        if self._table():
            return point_of(str(self.record.head["table"]))
        return next((label for label, row in self.rows.items() if _method(row) == "map"), None)

    def _table(self) -> Mapping[str, Row]:
        """The rows of the comparison, where it is one by name."""
        from leanbayes.recipes.tables import table, tables

        name = self.record.head.get("table")
        known: Mapping[str, Row] = table(name)["methods"] if name in tables() else {}
        return known

    def _missing(self, wanted: Mapping[str, Row]) -> int:
        """Runs that no file has."""
        counts = Counter(label for label, _ in self.record.done)
        seeds = len(self.record.seeds)
        return sum(max(0, row.get("seeds", seeds) - counts[k]) for k, row in wanted.items())


def _method(row: Row) -> str | None:
    found = row.get("config", {}).get("method", {}).get("name")
    return None if found is None else str(found)


def _is_by_rows(found: Row) -> bool:
    """True where a test was one of rows, which no file has."""
    return found.get("over") == "rows" or any(
        _is_by_rows(inner) for inner in found.values() if isinstance(inner, Mapping)
    )


def _check_same(path: Path, known: Row, row: Row) -> None:
    """Refuse a row with other settings; one that failed everywhere has none."""
    from leanbayes.cli.compare.ask import telling
    from leanbayes.errors import ConfigError
    from leanbayes.train.folder import differences

    if "config" not in known or "config" not in row:
        return
    there, now = (telling(dict(found["config"])) for found in (row, known))
    lines = differences(there, now, "", frozenset())
    if lines:
        words = f"{path} has a row of {row['method']!r} with other settings: {'; '.join(lines)}"
        raise ConfigError(f"{words}. Give one of the two a label of its own")
