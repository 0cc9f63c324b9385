"""The file of `--out`: there whole or not at all, and gone on with by `--resume`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

# What has to be in the file of a comparison, and the command that writes it.
COMPARED: Final = ({"seeds": list, "rows": list}, "leanbayes compare")


def check_place(out: Path | None, *, resume: bool = False) -> None:
    """Fail before the training, not after it."""
    from leanbayes.errors import ConfigError

    if out is None:
        if resume:
            raise ConfigError("--resume goes on with a file: write --out FILE.json")
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        with TemporaryFile(dir=out.parent):  # of its own: another command may be writing there
            pass
    except OSError as error:
        raise ConfigError(
            f"--out must be a file that can be written, found {str(out)!r}: {error.strerror}"
        ) from error


@contextmanager
def alone(out: Path | None) -> Iterator[None]:
    """Nobody else writes the file meanwhile: of two commands each would lose the other's rows."""
    if out is None:
        yield
        return
    words = (
        f"--out {out} is being written by another command: wait for it, or write another --out "
        "(of a comparison `leanbayes join` puts both together)"
    )
    with out.with_name(f".{out.name}.lock").open("w") as file, _held(file, words):
        yield


@contextmanager
def alone_in(
    folder: Path | None, flag: str = "--keep", what: str = "starts and scores"
) -> Iterator[None]:
    """Nobody else has the folder meanwhile: the files of two commands would be mixed.

    Args:
        folder: Of the command, if it has one.
        flag: That names it.
        what: The command keeps there.
    """
    if folder is None:
        yield
        return
    words = (
        f"{flag} {folder} is in use by another command, which keeps its own {what} there: wait "
        f"for it, or give each command a {flag} of its own"
    )
    try:
        file = (folder / ".lock").open("w")
    except OSError:  # where nothing can be written, nobody else writes either
        yield
        return
    with file, _held(file, words):
        yield


@contextmanager
def _held(file: IO[str], words: str) -> Iterator[None]:
    """The lock of a file that is open, and that nobody needs afterwards."""
    from leanbayes.errors import ConfigError

    path = Path(file.name)
    if not _locked(file, path):
        raise ConfigError(words)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _locked(file: IO[str], path: Path) -> bool:
    """Held until the file is closed, or its process ends in whatever way."""
    import fcntl  # no such thing outside of Unix, where nobody is to pay for it

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    # Whoever held it before may have removed the file since it was opened.
    with suppress(OSError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def save(out: Path | None, text: str) -> None:
    """The old file or the new one, never a part of one."""
    from leanbayes.train.folder import write_file

    if out is not None:
        write_file(out, text.encode())


def earlier(out: Path | None, keys: Mapping[str, type], command: str) -> dict[str, Any] | None:
    """What the file of `--out` holds; None where there is none yet. Else as `record_in`."""
    from leanbayes.errors import CheckpointError

    if out is None or not out.exists():
        return None
    try:
        return record_in(out, keys, command)
    except CheckpointError as error:
        raise CheckpointError(f"--resume: {error}; {ADVICE}") from None


def record_in(path: Path, keys: Mapping[str, type], command: str) -> dict[str, Any]:
    """What a file holds.

    Args:
        path: The file.
        keys: What has to be in it, and of which type.
        command: That writes such files.

    Raises:
        CheckpointError: It cannot be read, is damaged, or another command's.
    """
    from leanbayes.errors import CheckpointError
    from leanbayes.storage import parse_json

    try:
        found = parse_json(path, path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    wrong = [key for key, kind in keys.items() if not isinstance(found.get(key), kind)]
    if wrong or not all(isinstance(row, dict) for row in found["rows"]):
        words = f"expected {', '.join(keys)} as `{command}` writes them"
        raise CheckpointError(f"{path} is another kind of file: {words}")
    return found


ADVICE = "it is left as it is; choose another --out, or leave --resume out to write it anew"


def refuse_others(out: Path, what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise where settings differ, with the ones that do."""
    from leanbayes.errors import ConfigError
    from leanbayes.train.folder import differences

    lines = differences(old, json.loads(json.dumps(new, default=str)), "", frozenset())
    if lines:
        raise ConfigError(
            f"--resume: {out} holds {what} with other settings: {'; '.join(lines)}. Choose another "
            "--out, or the old settings to go on"
        )
