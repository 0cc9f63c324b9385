"""The checkpoints of a run: one directory a step, the newest valid one wins."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from leanbayes.errors import CheckpointError, ConfigError
from leanbayes.storage import (
    listed_files,
    read_directory,
    remove,
    sync_directory,
    write_directory,
)

BEST = "best"  # an empty file in a checkpoint: it was the best one when it was written
NAME = re.compile(r"step-(\d{8,})")
REMAINS = re.compile(r"\.step-(\d{8,})\.(new|old|gone)")

Found = tuple[int, dict[str, bytes]]


class Store:
    """Checkpoints under `folder/checkpoints`, as `step-00000123`.

    A checkpoint appears as a whole by a rename and its files are checked by sha256 when read, so a
    crash at any moment leaves the one before. "Best" is written in the checkpoint itself, for a
    pointer beside it could be out of step with it after a crash. One process writes.

    Args:
        folder: The run directory; made when the first checkpoint is.
        keep: How many of the newest checkpoints stay; the best one stays besides.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = Store(folder, keep=1)
        ...     for step in (10, 20, 30):
        ...         path = store.save(step, {"state.json": b"{}"}, best=step == 10)
        ...     store.steps(), store.newest()
        ([10, 30], (30, {'state.json': b'{}'}))
    """

    def __init__(self, folder: str | Path, keep: int = 2) -> None:
        if keep < 1:
            raise ConfigError(f"keep must be at least 1, found {keep}: a run needs one checkpoint")
        self.folder, self.keep = Path(folder) / "checkpoints", keep

    def save(self, step: int, files: Mapping[str, bytes], *, best: bool = False) -> Path:
        """Write a checkpoint and remove those that are not kept.

        Checkpoints of later steps go too: they are damaged, or of a run that was begun anew, and
        would be taken for the newest.

        Raises:
            CheckpointError: It could not be written; what was there still is.
        """
        path = self._path(step)
        write_directory(path, {**files, BEST: b""} if best else files, replace=True)
        with suppress(OSError):  # the checkpoint stands; what could not be removed goes next time
            self._prune(step)
        return path

    def steps(self) -> list[int]:
        """Steps of which there is a checkpoint, valid or not, oldest first."""
        return sorted(self._present())

    def read(self, step: int) -> dict[str, bytes]:
        """The files of a checkpoint.

        Raises:
            CheckpointError: It is not there, or damaged; the file is named.
        """
        files = read_directory(self._path(step))
        files.pop(BEST, None)
        return files

    def newest(self) -> Found | None:
        """Step and files of the newest valid checkpoint; warns of damaged ones that it passes."""
        return self._first_valid(reversed(self.steps()))

    def best(self) -> Found | None:
        """Step and files of the best checkpoint, as the run that wrote it found."""
        return self._first_valid(reversed(self._best_steps()))

    def _first_valid(self, steps: Iterable[int]) -> Found | None:
        for step in steps:
            try:
                return step, self.read(step)
            except CheckpointError as error:
                warnings.warn(
                    f"checkpoint {step} is passed over: {error}", UserWarning, stacklevel=3
                )
        return None

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def _present(self) -> set[int]:
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise CheckpointError(f"cannot read {self.folder}: {error.strerror}") from error
        whole = {int(found[1]) for name in names if (found := NAME.fullmatch(name))}
        # A crash while a checkpoint was replaced leaves the one before under its other name.
        old = {int(m[1]) for name in names if (m := REMAINS.fullmatch(name)) and m[2] == "old"}
        return whole | old

    def _best_steps(self) -> list[int]:
        found = []
        for step in self.steps():
            path = self._path(step)
            with suppress(CheckpointError):
                if BEST in listed_files(path if path.is_dir() else _old(path)):
                    found.append(step)
        return found

    def _prune(self, step: int) -> None:
        """Keep the newest ones up to this step, and the best of them."""
        present = [other for other in self.steps() if other <= step]
        best = [other for other in self._best_steps() if other <= step]
        kept = {*present[-self.keep :], *best[-1:]}
        for other in self._present() - kept:
            path = self._path(other)
            gone = path.with_name(f".{path.name}.gone")
            remove(gone)
            with suppress(FileNotFoundError):
                path.rename(gone)  # at once: half a checkpoint would look damaged
        self._sweep(kept)
        sync_directory(self.folder)

    def _sweep(self, kept: set[int]) -> None:
        """Remove what crashes and replaced checkpoints left."""
        for path in self.folder.iterdir():
            found = REMAINS.fullmatch(path.name)
            if not found:
                continue
            only_copy = found[2] == "old" and not self._path(int(found[1])).exists()
            if not (only_copy and int(found[1]) in kept):
                remove(path)


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")
