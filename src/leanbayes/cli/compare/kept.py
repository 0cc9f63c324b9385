"""The folder of a comparison: shared starts, and scores of single rows beside the record."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from leanbayes.cli.record_file import alone_in


@dataclass(frozen=True)
class Kept:
    """Scores by row, a file a run; nothing is kept without a folder."""

    folder: Path | None

    def save(self, label: str, seed: int, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the scores of a run."""
        from numpy import savez_compressed

        from leanbayes.train.folder import write_file

        if self.folder is None or not rows:
            return
        named = {f"{part}/{name}": v for part, found in rows.items() for name, v in found.items()}
        stream = io.BytesIO()
        savez_compressed(stream, **named)
        path = self._path(label, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, stream.getvalue())

    def rows(self, label: str, seed: int) -> dict[str, dict[str, Any]]:
        """The scores of a run, by part and figure; empty where there are none."""
        from leanbayes.data.files import load_arrays

        if self.folder is None or not self._path(label, seed).is_file():
            return {}
        found: dict[str, dict[str, Any]] = {}
        for key, values in load_arrays(self._path(label, seed)).items():
            part, _, name = key.rpartition("/")
            found.setdefault(part, {})[name] = values
        return found

    def _path(self, label: str, seed: int) -> Path:
        assert self.folder is not None
        return self.folder / "rows" / f"{quote(label, safe='')}-{seed}.npz"


@contextmanager
def folder_of(keep: Path | None, out: Path | None, *, needed: bool) -> Iterator[Path | None]:
    """Where a comparison keeps what is too much for its record.

    The folder of `--keep`; else one beside `--out`, and without that a temporary one, where
    something `needed` has to lie somewhere; else None. No other command has it meanwhile.
    """
    if keep is None and needed and out is not None:
        keep = out.with_name(f"{out.stem}-kept")
    if keep is None and needed:
        with tempfile.TemporaryDirectory(prefix="leanbayes-") as place:
            yield Path(place)
        return
    if keep is None:
        yield None
        return
    _make(keep)
    with alone_in(keep):
        yield keep


def _make(place: Path) -> None:
    """Fail before the training, not after it."""
    from leanbayes.errors import ConfigError

    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--keep must be a folder that can be written, found {str(place)!r}: {error.strerror}"
        ) from error
