"""Tables in files, by the suffix: CSV, JSON or parquet; whole or not at all."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from leanbayes.errors import ConfigError
from leanbayes.train.folder import write_file

SUFFIXES = (".csv", ".json", ".parquet")
Skipped = Sequence[tuple[str, str]]


def check_out(path: Path) -> None:
    """Fail before the work, not after it."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"--out is a file of {', '.join(SUFFIXES)}; found {str(path)!r}")
    if path.is_dir():
        raise ConfigError(f"--out is a file, found the folder {str(path)!r}")
    if path.suffix == ".parquet":
        _pyarrow()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {path} cannot be written: {error.strerror}") from None


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], skipped: Skipped) -> None:
    r"""Write rows; JSON also holds what was skipped.

    Bytes of a file's name that are no UTF-8 are written as Python shows them, "caf\udce9.png".
    """
    if path.suffix == ".csv":
        data = csv_text(rows).encode(errors="backslashreplace")
    elif path.suffix == ".json":
        data = (json.dumps(as_json(rows, skipped), indent=1) + "\n").encode()
    else:
        data = _parquet(rows)
    write_file(path, data)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    r"""Rows under a line with the names of the columns.

    Example:
        >>> csv_text([{"file": "a,b.png", "total": 0.25}])
        'file,total\n"a,b.png",0.25\n'
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["file"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_json(rows: Sequence[Mapping[str, Any]], skipped: Skipped) -> dict[str, Any]:
    """Rows, and files that were left out with the reason."""
    return {"rows": list(rows), "skipped": [{"file": f, "reason": why} for f, why in skipped]}


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    arrow = _pyarrow()
    stream = io.BytesIO()
    plain = [{key: _readable(value) for key, value in row.items()} for row in rows]
    import_module("pyarrow.parquet").write_table(arrow.Table.from_pylist(plain), stream)
    return stream.getvalue()


def _readable(value: Any) -> Any:
    text = isinstance(value, str)
    return value.encode(errors="backslashreplace").decode() if text else value


def _pyarrow() -> Any:
    try:
        return import_module("pyarrow")
    except ModuleNotFoundError:
        raise ConfigError("parquet needs pyarrow, which is missing: pip install pyarrow") from None
